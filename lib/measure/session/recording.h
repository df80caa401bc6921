/* SPDX-License-Identifier: Apache-2.0 */
/* What `measure --csv` wrote, read back: readings of power, and the runs of one phase, as
 * folded_power.h takes them. */
#ifndef JM_RECORDING_H
#define JM_RECORDING_H

#include "energy/folded_power.h"

struct jm_recorded_signal {
	char meter[JM_ID_MAX], label[64];
	bool power;		/* false: its readings are not kept */
	struct jm_signal about; /* of power: its window, and whether its readings are stamped */
	struct jm_reading *reading;
	int n, room;
};

struct jm_recording {
	const char *folder;
	struct jm_err *err;
	struct jm_recorded_signal *signal;
	int n_signals;
	struct jm_fold_runs runs; /* of the phase that was read */
	int64_t *begin, *end;
	int room;
};

/* Times are nanoseconds since the recorded session began; names are made printable (jm_text_tame).
 * folder and err are kept until jm_recording_done. */
int jm_recording_read(struct jm_recording *ret, const char *folder, struct jm_err *err);
/* The name of the phase that occurs most often. */
int jm_recording_phase(struct jm_recording *r, char *out, size_t size);
/* Fills runs. */
int jm_recording_runs(struct jm_recording *r, const char *phase);
void jm_recording_done(struct jm_recording *r);

#endif
