/* SPDX-License-Identifier: Apache-2.0 */
/* A visit of a setting, and what visits of several settings say. Of search.h. */
#ifndef JM_VISIT_H
#define JM_VISIT_H

#include "objective.h"

#define JM_TUNE_FLAT   0.02 /* a curve of which no point saves so much of the objective is flat */
#define JM_TUNE_ALIKE  0.01 /* settings whose objectives differ by less than this share are alike */
#define JM_TUNE_VISITS 4    /* of each of two settings that are compared */
#define JM_TUNE_DRIFT  0.05 /* a change of energy or time per item by this share is a drift */
/* a visit that differs from others of its setting by more than this share is an outlier */
#define JM_TUNE_ODD	 0.15
#define JM_TUNE_SETTINGS 5
#define JM_TUNE_SHARE	 0.10 /* of the time that searches after the first may take */

enum jm_stage { JM_STAGE_COARSE, JM_STAGE_GOLDEN, JM_STAGE_CONFIRM, JM_STAGE_HOLD };

#define JM_TUNE_GOLDEN 0.381966011250105 /* 1 - 1/phi */
#define JM_TUNE_KNOBS  2		 /* that one search moves, at most */

/* found: the setting that was found, whatever its values are. */
struct jm_tune_setting {
	bool found;
	double value[JM_TUNE_KNOBS]; /* in the unit of each knob; 0 of those that there are not */
};

struct jm_visit {
	struct jm_tune_setting setting;
	enum jm_stage stage;
	double seconds, items, joules;
	/* 95 %, of sampling alone: that of the sensor is the same for all settings */
	double error_joules;
	double wall_s; /* `seconds` and the wait before them */
};

/* A difference of logarithms and half its 95 % interval; NAN = unknown. */
struct jm_tune_gain {
	double log, half;
};

#endif
