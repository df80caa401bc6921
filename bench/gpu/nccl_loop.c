/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transfers between the GPUs of one host by NCCL in a bare loop, for comparison with joulemark's
 * workloads of the same names, which transfer the same sizes of f32:
 *	nccl_loop RANKS SIZE,... SECONDS [NAME...]	SIZE: GB of the larger array of a rank
 * Each rank is a process with the GPU of its number. Prints, of each name and size, one line of
 * JSON with the seconds of a transfer by the events of rank 0: the median of rows of 16.
 *	gcc -O2 bench/gpu/nccl_loop.c -o nccl_loop -lcudart -lnccl
 */
#include <cuda_runtime_api.h>
#include <math.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRANSFERS 16 /* in a row, as joulemark's steps have them */
#define ROWS	  1000

static const char *const names[] = {"allreduce", "allgather", "reducescatter", "broadcast"};

struct loop {
	int rank, ranks;
	ncclComm_t comm;
	cudaStream_t stream;
	cudaEvent_t began, done;
};

static void check(long failed, const char *what)
{
	if (!failed)
		return;
	fprintf(stderr, "nccl_loop: %s failed (%ld)\n", what, failed);
	exit(1);
}

/* With NCCL_COMM_BLOCKING=0 a call returns before its work is queued. */
static ncclResult_t settle(ncclComm_t comm, ncclResult_t rc)
{
	ncclResult_t state = rc;

	while (state == ncclInProgress && (rc = ncclCommGetAsyncError(comm, &state)) == ncclSuccess)
		rc = state;
	return rc;
}

static ncclResult_t transfer(
	const struct loop *l, const char *name, const float *from, float *to, size_t n)
{
	size_t part = n / (size_t)l->ranks;

	if (!strcmp(name, "allreduce"))
		return ncclAllReduce(from, to, n, ncclFloat, ncclSum, l->comm, l->stream);
	if (!strcmp(name, "allgather"))
		return ncclAllGather(from, to, part, ncclFloat, l->comm, l->stream);
	if (!strcmp(name, "reducescatter"))
		return ncclReduceScatter(from, to, part, ncclFloat, ncclSum, l->comm, l->stream);
	if (!strcmp(name, "broadcast"))
		return ncclBroadcast(from, to, n, ncclFloat, 0, l->comm, l->stream);
	return ncclInvalidUsage;
}

/* Milliseconds of a row of transfers. */
static float row(const struct loop *l, const char *name, const float *from, float *to, size_t n)
{
	float ms;

	check(cudaEventRecord(l->began, l->stream), "an event");
	for (int i = 0; i < TRANSFERS; i++)
		check(settle(l->comm, transfer(l, name, from, to, n)), name);
	check(cudaEventRecord(l->done, l->stream), "an event");
	check(cudaStreamSynchronize(l->stream), name);
	check(cudaEventElapsedTime(&ms, l->began, l->done), "the time of a row");
	return ms;
}

static int by_size(const void *a, const void *b)
{
	const float *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* All ranks run as many rows as rank 0 chooses. */
static int rows_of(const struct loop *l, double seconds, float ms, int *shared)
{
	int n = (int)fmin(ROWS, fmax(3, seconds * 1e3 / ms));

	check(cudaMemcpy(shared, &n, sizeof(n), cudaMemcpyHostToDevice), "a copy");
	check(settle(l->comm, ncclBroadcast(shared, shared, 1, ncclInt, 0, l->comm, l->stream)),
		"broadcast");
	check(cudaStreamSynchronize(l->stream), "broadcast");
	check(cudaMemcpy(&n, shared, sizeof(n), cudaMemcpyDeviceToHost), "a copy");
	return n;
}

static void measure(const struct loop *l, const char *name, double size, double seconds)
{
	size_t n = (size_t)ceil(size * 1e9 / sizeof(float) / l->ranks) * (size_t)l->ranks;
	static float ms[ROWS];
	float *from, *to;
	int *shared, rows;

	check(cudaMalloc((void **)&from, n * sizeof(*from)), "memory");
	check(cudaMalloc((void **)&to, n * sizeof(*to)), "memory");
	check(cudaMalloc((void **)&shared, sizeof(*shared)), "memory");
	check(cudaMemset(from, 0, n * sizeof(*from)), "memory");
	row(l, name, from, to, n);
	rows = rows_of(l, seconds, row(l, name, from, to, n), shared);
	for (int i = 0; i < rows; i++)
		ms[i] = row(l, name, from, to, n);
	qsort(ms, (size_t)rows, sizeof(*ms), by_size);
	if (!l->rank)
		printf("{\"name\": \"%s\", \"bytes\": %zu, \"ranks\": %d, \"rows\": %d, "
		       "\"seconds\": %.6g, \"least\": %.6g, \"most\": %.6g}\n",
			name, n * sizeof(*from), l->ranks, rows, ms[rows / 2] / 1e3 / TRANSFERS,
			ms[0] / 1e3 / TRANSFERS, ms[rows - 1] / 1e3 / TRANSFERS);
	cudaFree(from);
	cudaFree(to);
	cudaFree(shared);
}

static void work(int rank, int ranks, const int *pipes, char **argv)
{
	struct loop l = {.rank = rank, .ranks = ranks};
	ncclUniqueId id;
	ncclResult_t rc;
	char *end = argv[2];

	check(cudaSetDevice(rank), "the GPU");
	if (!rank)
		check(ncclGetUniqueId(&id), "an identity");
	for (int r = 1; r < ranks && !rank; r++)
		check(write(pipes[1], &id, sizeof(id)) != sizeof(id), "a pipe");
	if (rank)
		check(read(pipes[0], &id, sizeof(id)) != sizeof(id), "a pipe");
	rc = ncclCommInitRank(&l.comm, ranks, id, rank);
	check(settle(l.comm, rc), "the communicator");
	check(cudaStreamCreate(&l.stream), "a stream");
	check(cudaEventCreate(&l.began), "an event");
	check(cudaEventCreate(&l.done), "an event");
	for (const char *at = argv[2]; *at; at = *end ? end + 1 : end) {
		double size = strtod(at, &end);

		check(end == at, "reading a size");
		for (size_t i = 0; !argv[4] && i < sizeof(names) / sizeof(*names); i++)
			measure(&l, names[i], size, atof(argv[3]));
		for (int i = 4; argv[i]; i++)
			measure(&l, argv[i], size, atof(argv[3]));
	}
	ncclCommDestroy(l.comm);
	exit(0);
}

int main(int argc, char **argv)
{
	int ranks = argc > 3 ? atoi(argv[1]) : 0, pipes[2], failed = 0, status;

	setenv("NCCL_NVLS_ENABLE", "0", 0);
	if (ranks < 2 || pipe(pipes)) {
		fprintf(stderr, "usage: nccl_loop RANKS SIZE,... SECONDS [NAME...]\n");
		return 2;
	}
	for (int r = 0; r < ranks; r++)
		if (!fork())
			work(r, ranks, pipes, argv);
	while (wait(&status) > 0)
		failed |= status != 0;
	return failed;
}
