/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which published rules for power measurements the meters of a record satisfy, and what is missing.
 * Sources, read in 2026: MLPerf Training (mlcommons/training_policies, power_measurement.adoc);
 * MLPerf Inference (mlcommons/inference_policies, power_measurement.adoc; mlcommons/power-dev,
 * compliance/check.py for the 1 %); the levels of the Energy Efficient HPC Working Group, which the
 * Green500 uses (EEHPCWG/PowerMeasurementMethodology, methodology.tex and text/reporting.tex at
 * ff1d705 of 2024-11-08: working copy of version 3.0, with the limits of the draft of version 2.0).
 */
#ifndef JM_POWER_RULES_H
#define JM_POWER_RULES_H

#include <jansson.h>

/*
 * [{"rules": name, "met": boolean, "missing": [sentences], "not_judged": [sentences]}], one object
 * for each set of rules. met: nothing that can be judged is missing. The caller owns it; NULL = out
 * of memory.
 */
json_t *jm_power_rules(const json_t *record);

#endif
