/* SPDX-License-Identifier: Apache-2.0 */
/* What is fixed of a device that computes: memory, limits of its power, clocks, peaks. */
#ifndef JM_HARDWARE_H
#define JM_HARDWARE_H

#define JM_PEAK_MEANING "dense, at sm_clock_max_hz, by the compute capability"
/* name, key in the record, unit, meaning */
#define JM_HARDWARE(X)                                                                             \
	X(CAPABILITY, "compute_capability", NULL, "of CUDA: 9.0")                                  \
	X(MEMORY, "memory_bytes", "B", "of the device")                                            \
	X(MEMORY_RATE, "memory_bytes_per_s", "B/s",                                                \
		"width of the bus times two transfers per clock at memory_clock_max_hz; data "     \
		"sheets may name less")                                                            \
	X(POWER_DEFAULT, "power_default_watts", "W",                                               \
		"power limit by default: what data sheets call TDP or TGP")                        \
	X(POWER_MIN, "power_min_watts", "W", "lowest power limit that can be set")                 \
	X(POWER_MAX, "power_max_watts", "W", "highest power limit that can be set")                \
	X(SMS, "sm_count", NULL, "multiprocessors")                                                \
	X(SM_CLOCK_MAX, "sm_clock_max_hz", "Hz", "highest clock of the multiprocessors")           \
	X(MEMORY_CLOCK_MAX, "memory_clock_max_hz", "Hz", "highest clock of the memory")            \
	X(PEAK_F64, "peak_f64_flops_per_s", "FLOP/s",                                              \
		JM_PEAK_MEANING "; with tensor cores where they compute in f64")                   \
	X(PEAK_F32, "peak_f32_flops_per_s", "FLOP/s", JM_PEAK_MEANING "; without tensor cores")    \
	X(PEAK_TF32, "peak_tf32_flops_per_s", "FLOP/s", JM_PEAK_MEANING "; sums in f32")           \
	X(PEAK_F16, "peak_f16_flops_per_s", "FLOP/s", JM_PEAK_MEANING "; sums in f32")             \
	X(PEAK_BF16, "peak_bf16_flops_per_s", "FLOP/s", JM_PEAK_MEANING "; sums in f32")           \
	X(PEAK_F8, "peak_f8_flops_per_s", "FLOP/s", JM_PEAK_MEANING "; sums in f32")               \
	X(PEAK_I8, "peak_i8_ops_per_s", "op/s", JM_PEAK_MEANING)
enum jm_hardware_figure {
#define X(name, key, unit, meaning) JM_HW_##name,
	JM_HARDWARE(X)
#undef X
		JM_HW_COUNT
};

/* In SI units; 0 = unknown, or the device has no such thing. */
struct jm_hardware {
	double value[JM_HW_COUNT];
};

#endif
