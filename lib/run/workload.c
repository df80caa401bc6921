/* SPDX-License-Identifier: Apache-2.0 */
#include "run/workload.h"

#include "base/member.h"

JM_DEFINE_FIND(workload)
