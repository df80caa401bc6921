/* SPDX-License-Identifier: Apache-2.0 */
/* What backend cuda makes of the errors of the CUDA runtime. */
#include "backends/cuda/device/cuda.h"
#include "kit/test.h"
#include "backends/cuda/device/gpu.h"

static const struct {
	int rc; /* by number, as driver_types.h has them */
	int code;
	const char *says;
} errors[] = {
	/* "leaves the process in an inconsistent state and any further CUDA work will return the
	 * same error" */
	{226, JM_EGONE, "ECC"},
	{700, JM_EGONE, "outside its buffers"},
	{702, JM_EGONE, "took longer"},
	{710, JM_EGONE, "assertion"},
	{714, JM_EGONE, "stack"},
	{715, JM_EGONE, "illegal instruction"},
	{716, JM_EGONE, "misaligned"},
	{717, JM_EGONE, "address space"},
	{718, JM_EGONE, "jumped"},
	{719, JM_EGONE, "Xid"},
	{721, JM_EGONE, "tensor memory"},
	{810, JM_EGONE, "MPS"},
	{911, JM_EGONE, "Xid"},
	/* the GPU */
	{214, JM_EGONE, "ECC"},
	{220, JM_EGONE, "NVLink"},
	{999, JM_EGONE, "Xid"},
	/* the process can go on */
	{1, JM_EIO, "Xid"},
	{2, JM_ENOMEM, "nvidia-smi"},
	{209, JM_ENOSUP, "no code for this GPU"},
};

static void errors_that_end_a_context_are_faults_of_the_device(void **unused)
{
	const struct cuda_dev dev = {.index = 3};

	(void)unused;
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
		struct jm_err err = JM_ERR_INIT;

		assert_int_equal(cuda_check(&dev, (cudaError_t)errors[i].rc, "A copy", &err),
			errors[i].code);
		assert_sentence(&err, errors[i].code);
		assert_non_null(strstr(err.text, "A copy failed on cuda:3: "));
		assert_non_null(strstr(err.text, errors[i].says));
	}
}

static void check_waiting(struct cuda_dev *dev, const char *begins)
{
	struct jm_err err = JM_ERR_INIT;

	assert_int_equal(cuda_waited(dev, cudaErrorIllegalAddress, &err), JM_EGONE);
	assert_int_equal(strncmp(err.text, begins, strlen(begins)), 0);
}

static void waiting_names_the_work(void **unused)
{
	struct cuda_dev dev = {.index = 0};
	struct jm_err err = JM_ERR_INIT;

	(void)unused;
	check_waiting(&dev, "Work failed on cuda:0: ");
	cuda_queued(&dev, "rmsnorm");
	check_waiting(&dev, "rmsnorm failed on cuda:0: ");
	cuda_queued(&dev, "linear");
	check_waiting(&dev, "Work up to linear failed on cuda:0: ");
	assert_int_equal(cuda_waited(&dev, cudaSuccess, &err), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(errors_that_end_a_context_are_faults_of_the_device),
		cmocka_unit_test(waiting_names_the_work),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
