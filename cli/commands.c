/* SPDX-License-Identifier: Apache-2.0 */
/* The commands, in the order of the help. */
#include "commands.h"

extern const struct jm_command jm_command_calibrate;
extern const struct jm_command jm_command_check;
extern const struct jm_command jm_command_compare;
extern const struct jm_command jm_command_data;
extern const struct jm_command jm_command_describe;
extern const struct jm_command jm_command_doctor;
extern const struct jm_command jm_command_export;
extern const struct jm_command jm_command_fold;
extern const struct jm_command jm_command_get;
extern const struct jm_command jm_command_guard;
extern const struct jm_command jm_command_help;
extern const struct jm_command jm_command_jpwr;
extern const struct jm_command jm_command_reaper;
extern const struct jm_command jm_command_watchdog;
extern const struct jm_command jm_command_list;
extern const struct jm_command jm_command_mark;
extern const struct jm_command jm_command_measure;
extern const struct jm_command jm_command_merge;
extern const struct jm_command jm_command_plan;
extern const struct jm_command jm_command_query;
extern const struct jm_command jm_command_report;
extern const struct jm_command jm_command_restore;
extern const struct jm_command jm_command_run;
extern const struct jm_command jm_command_selftest;
extern const struct jm_command jm_command_set;
extern const struct jm_command jm_command_status;
extern const struct jm_command jm_command_submit;
extern const struct jm_command jm_command_top;
extern const struct jm_command jm_command_tune;
extern const struct jm_command jm_command_watch;
extern const struct jm_command jm_command_worker;

const struct jm_command *const jm_commands[] = {
	&jm_command_run,
	&jm_command_plan,
	&jm_command_submit,
	&jm_command_measure,
	&jm_command_tune,
	&jm_command_watch,
	&jm_command_top,
	&jm_command_mark,
	&jm_command_export,
	&jm_command_jpwr,
	&jm_command_report,
	&jm_command_compare,
	&jm_command_check,
	&jm_command_merge,
	&jm_command_query,
	&jm_command_describe,
	&jm_command_data,
	&jm_command_set,
	&jm_command_get,
	&jm_command_status,
	&jm_command_restore,
	&jm_command_calibrate,
	&jm_command_fold,
	&jm_command_doctor,
	&jm_command_selftest,
	&jm_command_list,
	&jm_command_guard,
	&jm_command_reaper,
	&jm_command_watchdog,
	&jm_command_worker,
	&jm_command_help,
	NULL,
};
