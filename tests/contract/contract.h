/* SPDX-License-Identifier: Apache-2.0 */
/* Requirements for every member. Each file tests one kind of member. */
#ifndef JM_CONTRACT_H
#define JM_CONTRACT_H

#include "../kit/test.h"
#include "base/member.h"
#include "meter/source.h"
#include "guard/control.h"
#include "run/workload.h"
#include "engine/graph/model.h"

/* What to write behind "name:" so that a member that needs an argument opens; NULL = not known. */
static inline const char *contract_argument(const char *name)
{
	static const char *const known[][2] = {{"sim", "h100x4"}};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(known[i][0], name))
			return known[i][1];
	return "";
}

static inline void contract_name(const char *kind, const char *name, const char *summary)
{
	size_t n = summary ? strlen(summary) : 0;

	if (!name || !*name ||
		strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") < strlen(name))
		fail_msg(
			"%s '%s': a name is small letters, digits, dashes", kind, name ? name : "");
	if (n < 5 || n > 80 || summary[n - 1] == '.')
		fail_msg("%s %s: the summary is one line without a full stop", kind, name);
}

/* Whatever was not possible is told in one whole sentence that is of some help. */
static inline void contract_error(const char *what, int rc, const struct jm_err *err)
{
	size_t n = strlen(err->text);

	if (rc >= 0 || err->code >= 0)
		fail_msg("%s: an error without a code", what);
	if (n < 15 || (err->text[n - 1] != '.' && err->text[n - 1] != '?'))
		fail_msg("%s: not a whole sentence: '%s'", what, err->text);
	if (strstr(err->text, "(null)") || strstr(err->text, "  "))
		fail_msg("%s: not a good sentence: '%s'", what, err->text);
}

void contract_option(const char *owner, const struct jm_option *o);
void contract_sources(void **unused);
void contract_source_arguments(void **unused);
void contract_doctor(void **unused);
void contract_controls(void **unused);
void contract_workloads(void **unused);
void contract_models(void **unused);
void contract_absent(void **unused);

#endif
