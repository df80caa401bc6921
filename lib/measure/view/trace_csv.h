/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recorded trace as a folder of CSV files (RFC 4180):
 *	meters.csv	one row per signal:
 *			signal,meter,label,device,scope,origin,covers,quantity,unit,
 *			step,wrap,refresh_s,window_s,accuracy,stamped
 *	readings.csv	signal,t_s,value	changes only, each signal in order of time; empty =
 *						no reading
 *	watts.csv	t_s, then a column for each meter by its id: one row for each time at which
 *			the power of one of them changed, and it holds until the next row; empty =
 *			unknown
 *	phases.csv	name,start_s,end_s,items
 *	clock.csv	t_s,wall_ns		pairs of session time and wall time
 * Times are seconds since the session began; unknown is empty.
 */
#ifndef JM_TRACE_CSV_H
#define JM_TRACE_CSV_H

#include "measure/session/session.h"

/* After jm_session_stop. The folder must be there. */
int jm_csv_write(struct jm_session *s, const char *folder, struct jm_err *err);

#endif
