/* SPDX-License-Identifier: Apache-2.0 */
/* Two crossed factors. */
#ifndef JM_STAT_BLOCKS_H
#define JM_STAT_BLOCKS_H

/*
 * Settings compared on several cards: value = setting + card + noise, fitted by least squares, the
 * effects of the cards with weighted sum 0. NAN among the values means "unknown".
 */
struct jm_block_values {
	const double *value;	   /* [n] */
	const int *setting, *card; /* [n] levels from 0 */
	int n, n_settings, n_cards;
};
struct jm_blocks {
	double *mean; /* [n_settings] with the cards' effects taken out; NAN: no value */
	/* [n_settings] of the 95 % interval by the residual; NAN: no degree of freedom left */
	double *half_width;
	double *card; /* [n_cards] effects; NAN: no value */
};
/* JM_ERANGE: the cards do not link all settings, or there are more than 256 levels. */
int jm_stat_blocks(const struct jm_block_values *values, struct jm_blocks *ret);

#endif
