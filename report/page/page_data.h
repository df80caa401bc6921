/* SPDX-License-Identifier: Apache-2.0 */
/* What the page shows, as JSON. */
#ifndef JM_PAGE_DATA_H
#define JM_PAGE_DATA_H

#include "report/model/grouping.h"

/* For the caller to decref; NULL: no memory. */
json_t *jm_page_data(const struct jm_grouping *g);

#endif
