/* SPDX-License-Identifier: Apache-2.0 */
/* Readings of a meter that cannot be true. */
#ifndef JM_SENSOR_FAULT_H
#define JM_SENSOR_FAULT_H

/* What is wrong with a meter's readings, and the words for it in a record. energy_check.c finds
 * it. */
#define JM_FAULTS(X)                                                                               \
	X(NONE, "none")                                                                            \
	X(COUNTER_STUCK, "counter-stuck") /* it had no steps; not used */                          \
	X(COUNTER_FAST, "counter-fast")	  /* it rose by more than the device can draw; not used */ \
	X(CONTRADICTION, "contradiction") /* counter and power exclude each other; none is used */ \
	X(DIFFER, "differ")		  /* they differ by more than their bounds */              \
	X(POWER_ZERO, "power-zero")	  /* 0 W of a device that is on; power is not used */      \
	X(COUNTER_RESET, "counter-reset") /* and there is no power; the energy is unknown */       \
	X(NO_READINGS, "no-readings")	  /* for a part of the time; the energy is unknown */
enum jm_fault_kind {
#define X(name, text) JM_FAULT_##name,
	JM_FAULTS(X)
#undef X
};

struct jm_fault {
	enum jm_fault_kind kind;
	double seconds;			   /* for how long */
	double counter_watts, power_watts; /* means over these seconds; NAN = unknown */
	double power_zero_s;		   /* s for which power readings were 0 W */
};

/* JM_FAULT_NONE where nothing is wrong; "counter-stuck". */
enum jm_fault_kind jm_fault_kind(const struct jm_fault *fault);
const char *jm_fault_name(enum jm_fault_kind kind);

#endif
