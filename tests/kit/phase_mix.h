/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated phases of 2 s, a product, a stream and an all-gather, whose curves are those of the
 * simulated H100. */
#ifndef JM_TEST_PHASE_MIX_H
#define JM_TEST_PHASE_MIX_H

#include "sim/sim_model.h"
#include "tune/phase_search.h"

#define PHASE_MIX_PHASES 3
#define PHASE_MIX_CAPS	 6
#define PHASE_MIX_NOISE	 0.01 /* of the energy and of the time of a phase */

extern const char *const phase_mix_names[PHASE_MIX_PHASES];
extern const double phase_mix_caps[PHASE_MIX_CAPS]; /* the first one is found */

struct phase_mix {
	const struct jm_sim_gpu *gpu;
	const struct jm_sim_response *response[PHASE_MIX_PHASES];
	struct jm_sim_curve rate[PHASE_MIX_PHASES];
	double items[PHASE_MIX_PHASES]; /* of 2 s under the setting found */
};

struct phase_mix phase_mix_of(void);
double phase_mix_watts(const struct phase_mix *t, int phase, double cap);
double phase_mix_seconds(const struct phase_mix *t, int phase, double cap);
/* The truth of one occurrence of each phase, under a cap for each. */
void phase_mix_cycle(
	const struct phase_mix *t, const double *cap, double *ret_joules, double *ret_s);
/* The least energy of a cycle under one cap for all phases that takes no longer than that; each
 * watt is tried. */
double phase_mix_best_single(const struct phase_mix *t, double most_s);
int phase_mix_search(const char *objective, struct jm_phase_search **ret, struct jm_err *err);
/* Cycles of the phases until a choice is held, at most so many; returns how many there were. */
int phase_mix_work(struct jm_phase_search *s, const struct phase_mix *t, double noise,
	uint64_t seed, int cycles);
/* The caps that are held in the phases. */
void phase_mix_chosen(const struct jm_phase_search *s, double cap[PHASE_MIX_PHASES]);

#endif
