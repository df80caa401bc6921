/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the command `run`: from options to a request, and the progress that is printed. */
#ifndef JM_CLI_RUN_H
#define JM_CLI_RUN_H

#include "base/ctx.h"
#include "cli/frame/cli.h"
#include "measure/command/work_status.h"
#include "run/sweep/sweep.h"

#include <stdio.h>

/* ---- run_show.c ---- */

struct jm_run_show {
	const struct jm_plan *plan;
	json_t *varying; /* as of jm_run_varying */
	bool terminal;	 /* stderr is one: a live line with a bar and the time left */
	bool colour, quiet;
	int width;	    /* columns of stderr */
	const char *origin; /* of the energy on the line before; "" = measured */
	double largest;	    /* joules per item so far, of items with the unit largest_unit */
	char largest_unit[40];
	int done, failed; /* in this call */
	int64_t start_ns; /* machine's clock */
	char note[256];	  /* of the records, printed already */
	/* for `joulemark status` in another terminal */
	struct jm_work_writer *writer;
	const char *store; /* NULL = none */
};

#endif
