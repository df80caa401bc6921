/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which orders of accesses to shared memory compute-sanitizer's racecheck follows:
 *
 *	nvcc -arch=sm_90a -o race_probe tests/hw/race_probe.cu
 *	for k in 0 1 2 3 4 5 6; do compute-sanitizer --tool racecheck ./race_probe $k; done
 *
 * One warp fills a slot in shared memory, another one reads it, and so on in turns, with mbarriers
 * between them as in backends/cuda/kernels/attention_keys.cuh. In the first five kernels these
 * order all accesses, so a report there is wrong; the last two have a race. Sums of what was read
 * are checked. docs/gpu.md, Correctness, has the results.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#define ROUNDS	64
#define READERS 32
#define WARP	32

enum fill {
	STORES,
	WARP_STORES,
	BULK
}; /* by one thread, by a warp of which one lane arrives, by a copy */
enum told {
	ALL_LANES,
	ONE_LANE,
	TOO_EARLY
}; /* who arrives for the warp that reads; before it reads is a race */

__device__ uint32_t at(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ void init(uint64_t *bar, int arrivals)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(bar)), "r"(arrivals));
}

__device__ void arrive(uint64_t *bar)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(bar)) : "memory");
}

__device__ void wait(uint64_t *bar, int parity)
{
	asm volatile("{\n"
		     ".reg .pred done;\n"
		     "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
		     "@!done bra again;\n"
		     "}" ::"r"(at(bar)),
		     "r"(parity)
		     : "memory");
}

/* Of the warp that fills. */
template <fill FILL> __device__ void put(int *slot, const int *from, uint64_t *full)
{
	const int bytes = READERS * sizeof(int), lane = threadIdx.x % WARP;

	if (FILL == WARP_STORES)
		slot[lane] = from[lane];
	for (int i = 0; FILL == STORES && lane == 0 && i < READERS; i++)
		slot[i] = from[i];
	__syncwarp();
	if (lane)
		return;
	if (FILL != BULK) {
		arrive(full);
		return;
	}
	asm volatile(
		"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(full)), "r"(bytes)
		: "memory");
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
		     "[%1], %2, [%3];" ::"r"(at(slot)),
		     "l"(from), "r"(bytes), "r"(at(full))
		     : "memory");
}

/* Warp 0 reads, warp 1 fills. */
template <fill FILL, told TOLD> __global__ void passes(const int *from, int *sums)
{
	__shared__ alignas(128) int slot[READERS];
	__shared__ uint64_t full, empty;
	int sum = 0;

	if (threadIdx.x == 0) {
		init(&full, 1);
		init(&empty, TOLD == ONE_LANE ? 1 : READERS);
		asm volatile("fence.proxy.async;" ::: "memory");
	}
	__syncthreads();
	for (int i = 0; i < ROUNDS; i++) {
		if (threadIdx.x >= WARP) {
			if (i)
				wait(&empty, (i - 1) & 1);
			put<FILL>(slot, from + i * READERS, &full);
			continue;
		}
		wait(&full, i & 1);
		if (TOLD == TOO_EARLY)
			arrive(&empty);
		sum += slot[threadIdx.x];
		__syncwarp();
		if (TOLD == ALL_LANES || (TOLD == ONE_LANE && threadIdx.x == 0))
			arrive(&empty);
	}
	if (threadIdx.x < WARP)
		sums[threadIdx.x] = sum;
}

typedef void (*kernel)(const int *from, int *sums);
static const struct {
	const char *name;
	kernel run;
} kernels[] = {
	{"a thread stores; all lanes arrive", passes<STORES, ALL_LANES>},
	{"a thread stores; one lane arrives for its warp", passes<STORES, ONE_LANE>},
	{"a warp stores, one lane arrives for it; all lanes arrive",
		passes<WARP_STORES, ALL_LANES>},
	{"a bulk copy; all lanes arrive", passes<BULK, ALL_LANES>},
	{"a bulk copy; one lane arrives for its warp", passes<BULK, ONE_LANE>},
	{"race: a thread stores; lanes arrive too early", passes<STORES, TOO_EARLY>},
	{"race: a bulk copy; lanes arrive too early", passes<BULK, TOO_EARLY>},
};

int main(int argc, char **argv)
{
	const int n = ROUNDS * READERS, which = argc > 1 ? atoi(argv[1]) : 0;
	int *from, *sums, bad = 0;

	if (which < 0 || which >= (int)(sizeof kernels / sizeof *kernels))
		return 2;
	cudaMallocManaged(&from, n * sizeof *from);
	cudaMallocManaged(&sums, READERS * sizeof *sums);
	for (int i = 0; i < n; i++)
		from[i] = i * i % 977;
	kernels[which].run<<<1, 2 * WARP>>>(from, sums);
	cudaError_t rc = cudaDeviceSynchronize();
	for (int lane = 0; lane < READERS && !rc; lane++) {
		int sum = 0;

		for (int i = 0; i < ROUNDS; i++)
			sum += from[i * READERS + lane];
		bad += sum != sums[lane];
	}
	printf("%d: %s: %s, %d of %d sums are wrong\n", which, kernels[which].name,
		cudaGetErrorString(rc), bad, READERS);
	return rc != cudaSuccess;
}
