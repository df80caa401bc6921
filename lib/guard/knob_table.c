/* SPDX-License-Identifier: Apache-2.0 */
/* Opening controls by name and finding a knob's own. */
#include "guard/knob_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add_member(struct jm_board *board, struct jm_ctx *ctx, const struct jm_control *control,
	const char *arg, struct jm_err *err)
{
	struct jm_board_member *grown, *m;
	const char *again = control->restore_argument ? control->restore_argument : arg;
	int rc;

	grown = reallocarray(board->member, (size_t)board->n + 1, sizeof(*grown));
	if (!grown)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for control %s.", control->name);
	board->member = grown;
	m = &grown[board->n];
	*m = (struct jm_board_member){.control = control, .first = board->knobs.n};
	snprintf(m->restore_spec, sizeof(m->restore_spec), "%s%s%s", control->name,
		*again ? ":" : "", again);
	rc = control->open(ctx, arg, &board->knobs, &m->state, err);
	if (rc < 0) {
		board->knobs.n = m->first;
		return rc;
	}
	m->n = board->knobs.n - m->first;
	board->n++;
	return 0;
}

/* One of the list, "name" or "name:argument". */
static int open_spec(
	struct jm_board *board, struct jm_ctx *ctx, const char *spec, struct jm_err *err)
{
	char name[JM_SPEC_MAX];
	const struct jm_control *control;
	char *colon;

	snprintf(name, sizeof(name), "%s", spec);
	colon = strchr(name, ':');
	if (colon)
		*colon = '\0';
	control = jm_control_find(name, err);
	if (!control)
		return err && err->code ? err->code : JM_EUSAGE;
	return add_member(board, ctx, control, colon ? colon + 1 : "", err);
}

/* Is the word at w of the cut copy one of those before it in the list? */
static bool named_before(const char *list, const char *copy, const char *w)
{
	const char *end = list + (w - copy);
	size_t n = strlen(w), length;

	for (; list < end; list += length + (list[length] == ',')) {
		length = strcspn(list, ",");
		if (length == n && !strncmp(list, w, n))
			return true;
	}
	return false;
}

static int open_list(
	struct jm_board *board, struct jm_ctx *ctx, const char *specs, struct jm_err *err)
{
	char copy[512], *save = NULL;
	int rc = 0;

	if (strlen(specs) >= sizeof(copy))
		return jm_err_set(
			err, JM_EUSAGE, "The list of controls is too long: '%.60s...'.", specs);
	memcpy(copy, specs, strlen(specs) + 1);
	for (char *w = strtok_r(copy, ",", &save); w && !rc; w = strtok_r(NULL, ",", &save))
		if (named_before(specs, copy, w))
			rc = jm_err_set(err, JM_EUSAGE,
				"The control '%s' is named twice; once is enough.", w);
		else
			rc = strlen(w) < JM_SPEC_MAX
				     ? open_spec(board, ctx, w, err)
				     : jm_err_set(err, JM_EUSAGE, "'%.60s...' is no control.", w);
	if (!rc && !board->n)
		return jm_err_set(
			err, JM_EUSAGE, "No control is named; 'joulemark list' shows them.");
	return rc;
}

/* Every control that acts on the machine and opens; why the others do not is said when none does. */
static int open_machine(struct jm_board *board, struct jm_ctx *ctx, struct jm_err *err)
{
	char why[400] = "";
	size_t used = 0;

	for (int i = 0; jm_controls[i]; i++) {
		struct jm_err one = JM_ERR_INIT;

		if (jm_controls[i]->origin != JM_MEASURED)
			continue;
		if (add_member(board, ctx, jm_controls[i], "", &one) && used < sizeof(why))
			used += (size_t)snprintf(why + used, sizeof(why) - used, " %s: %s",
				jm_controls[i]->name, one.text);
	}
	if (board->knobs.n)
		return 0;
	return jm_err_set(err, JM_ENOENT,
		"This machine has no knob that can be reached;%s A simulated one is --control "
		"sim:h100x4.",
		why);
}

int jm_board_open(struct jm_ctx *ctx, const char *specs, struct jm_board *ret, struct jm_err *err)
{
	struct jm_board board = {0};
	int rc = specs ? open_list(&board, ctx, specs, err) : open_machine(&board, ctx, err);

	if (rc)
		jm_board_close(&board);
	else
		*ret = board;
	return rc;
}

void jm_board_close(struct jm_board *board)
{
	for (int i = 0; i < board->n; i++)
		board->member[i].control->close(board->member[i].state);
	free(board->member);
	jm_knobs_done(&board->knobs);
	*board = (struct jm_board){0};
}

const struct jm_board_member *jm_board_member_of(const struct jm_board *board, int i)
{
	const struct jm_board_member *m = board->member;

	while (i >= m->first + m->n)
		m++;
	return m;
}

int jm_board_get(const struct jm_board *board, int i, double *ret_requested, double *ret_enforced,
	struct jm_err *err)
{
	const struct jm_board_member *m = jm_board_member_of(board, i);

	return m->control->get(m->state, i - m->first, ret_requested, ret_enforced, err);
}

int jm_board_set(const struct jm_board *board, int i, double value, struct jm_err *err)
{
	const struct jm_board_member *m = jm_board_member_of(board, i);

	return m->control->set(m->state, i - m->first, value, err);
}

int jm_board_find(const struct jm_board *board, const char *knob, const char *device)
{
	for (int i = 0; i < board->knobs.n; i++)
		if (!strcmp(board->knobs.knob[i].name, knob) &&
			!strcmp(board->knobs.knob[i].device, device))
			return i;
	return -1;
}
