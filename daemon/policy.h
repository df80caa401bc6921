/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room daemon: joulemarkd, which serves guards to users without rights (door.h). May include: lib.
 *
 * Root's policy: who may set which knob to what, for how long, with how many leases at once. One
 * rule a line:
 *
 *	user alice     gpu.power=200:700W                     for 4h leases 2
 *	group ml       cpu.clock@policy0=1.2:3.5GHz           # devices whose id begins with policy0
 *	everyone       cpu.governor=powersave,performance
 *	everyone gpu.clock=900:1800MHz found unlocked # what an unreadable knob has without a lease
 *
 * A value is allowed where one rule of the user allows it; who has no rule gets no lease.
 */
#ifndef JM_POLICY_H
#define JM_POLICY_H

#include <sys/stat.h>
#include <sys/types.h>

#include "guard/setting.h"

#define JM_POLICY_PATH "/etc/joulemark/joulemarkd.conf"
#define JM_POLICY_MAX  65536 /* bytes */

enum jm_rule_who { JM_RULE_USER, JM_RULE_GROUP, JM_RULE_EVERYONE };

struct jm_rule {
	enum jm_rule_who who;
	unsigned int id; /* of the user or group; JM_RULE_NOBODY = there is none of that name */
	char name[64];	 /* as it was written */
	struct jm_setting target; /* knob and selector */
	char unit[8];
	struct jm_knob_value range; /* unknown = only words */
	char words[112];	    /* separated by spaces */
	struct jm_knob_value found; /* unknown = not stated */
	double seconds;		    /* of a lease that has set it */
	int leases;		    /* of one user at once */
};
#define JM_RULE_NOBODY	(unsigned int)-1
#define JM_RULE_SECONDS 86400.0 /* unless the rule says */
#define JM_RULE_LEASES	1
#define JM_LEASES_MOST	512 /* of all users */

struct jm_policy {
	struct jm_rule *rule;
	int n;
	struct stat file; /* from which it was read */
};

/* Who asks. */
struct jm_caller {
	uid_t uid;
	const gid_t *group; /* all of them */
	int n_groups;
};

/* Parses the text; JM_EFORMAT: the sentence has the line. Names without a user or group are no
 * error. */
int jm_policy_parse(const char *text, size_t n, struct jm_policy *ret, struct jm_err *err);
void jm_policy_done(struct jm_policy *policy);

/* Leases at once that the caller may have; 0 = there is no rule for it. */
int jm_policy_leases(const struct jm_policy *policy, const struct jm_caller *caller);
/* ret_seconds: how long a lease may last that sets this. JM_EPERM: the sentence says what is
 * allowed. */
int jm_policy_allow(const struct jm_policy *policy, const struct jm_caller *caller,
	const struct jm_knob *knob, const struct jm_knob_value *value, double *ret_seconds,
	struct jm_err *err);
/* Is there a rule of the caller for this knob? */
bool jm_policy_names(
	const struct jm_policy *policy, const struct jm_caller *caller, const char *knob);
/* The longest that any lease of the caller may last. */
double jm_policy_seconds(const struct jm_policy *policy, const struct jm_caller *caller);
/* What the knob has without a lease, as the first rule for it that says so; unknown = none does. */
struct jm_knob_value jm_policy_found(const struct jm_policy *policy, const struct jm_knob *knob);

#endif
