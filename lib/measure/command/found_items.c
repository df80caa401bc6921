/* SPDX-License-Identifier: Apache-2.0 */
#include "found_items.h"

#include "base/ctx.h"

#include <stdio.h>

/* A misspelt key must not look like a command without items. */
static void say_nothing_found(const struct jm_found_items *f)
{
	const char *regex = f->regex, *near = jm_scan_near(f->scan);

	jm_log(f->ctx, JM_WARNING,
		"--items-%s '%s' found no items in the output of '%s'%s%s%s items are unknown.",
		regex ? "regex" : "json", regex ? regex : f->json_key, f->command,
		near ? "; did you mean '" : "", near ? near : "", near ? "'? Its" : ", so its");
}

/* Items that were left out make the sum too small. */
static void say_unread(const struct jm_found_items *f)
{
	const char *first;
	long n = jm_scan_unread(f->scan, &first);

	if (n)
		jm_log(f->ctx, JM_WARNING,
			"--items-regex '%s' matched text that is no number of items %ld times, "
			"first '%s'; these matches were ignored.",
			f->regex, n, first);
}

/* Items that are reported twice are counted once. */
static void say_left_out(const struct jm_found_items *f)
{
	if (f->n_left_out)
		jm_log(f->ctx, JM_WARNING,
			"The items of %ld marks were ignored, because --items-%s counts items in "
			"the output of '%s'. The marks only begin phases.",
			f->n_left_out, f->regex ? "regex" : "json", f->command);
}

/* Which of the two the rule has taken, where a reader could take the other. */
static void say_kind(const struct jm_found_items *f)
{
	const char *regex = f->regex;
	const struct jm_item_rule *rule = &f->sums->rule;
	bool totals = jm_item_rule_kind(rule) == JM_ITEMS_TOTAL;
	char begin[80] = "";

	if (f->sums->given || !jm_item_rule_doubtful(rule))
		return;
	for (int i = 0, n = 0; i < rule->n && i < 3; i++)
		n += snprintf(begin + n, sizeof(begin) - (size_t)n, "%s%.10g", i ? ", " : "",
			rule->begin[i]);
	jm_log(f->ctx, JM_INFO,
		"The numbers of --items-%s '%s' (%s%s) %s: %.10g items. If each is %s, give "
		"--items-kind %s.",
		regex ? "regex" : "json", regex ? regex : f->json_key, begin,
		rule->n > 3 ? ", ..." : "",
		totals ? "count up, so each is the total so far"
		       : "do not count up evenly, so they were added up",
		jm_item_sums_tally(f->sums).items,
		totals ? "an amount to be added" : "the total so far", totals ? "amount" : "total");
}

/* A sum that may be incomplete is unknown. */
static void say_limited(const struct jm_found_items *f)
{
	long n = jm_scan_limited(f->scan);

	if (n)
		jm_log(f->ctx, JM_WARNING,
			"--items-regex '%s' could not be evaluated for %ld line%s of the output of "
			"'%s', so its items are unknown; use a simpler expression.",
			f->regex, n, n > 1 ? "s" : "", f->command);
}

void jm_found_items_say(const struct jm_found_items *f)
{
	bool limited = jm_scan_limited(f->scan);

	if (!f->sums->amount.marks && !limited)
		say_nothing_found(f);
	say_unread(f);
	if (!limited && !f->sums->lost)
		say_kind(f);
	say_limited(f);
	say_left_out(f);
}
