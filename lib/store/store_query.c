/* SPDX-License-Identifier: Apache-2.0 */
/* Queries by the user: one SELECT on the documented views; whatever would write, attach or load is
 * refused. */
#include "store/store_query.h"
#include "store/store.h"
#include "store/store_db.h"
#include "store/store_schema.h"
#include "store/store_sql.h"

#include <stdio.h>
#include <string.h>

#define VIEWS "'results', 'records' and 'cases'"

struct watch {
	char refused[160]; /* "" = nothing was */
};

/* Something that lies in the file; a function of SQLite that makes a table of JSON counts as in it,
 * too. */
static bool is_of_file(const char *name, const char *database)
{
	return database && !strcmp(database, "main") && strcmp(name, "json_each") != 0 &&
	       strcmp(name, "json_tree") != 0;
}

static int refuse(struct watch *w, const char *what, const char *name)
{
	if (!*w->refused)
		snprintf(w->refused, sizeof(w->refused), "%s%s%s", what, name ? " " : "",
			name ? name : "");
	return SQLITE_DENY;
}

/* Called by SQLite for each thing that a statement does; inner: the view that does it. */
static int allow(void *arg, int action, const char *first, const char *second, const char *database,
	const char *inner)
{
	struct watch *w = arg;

	switch (action) {
	case SQLITE_SELECT:
	case SQLITE_RECURSIVE:
		return SQLITE_OK;
	case SQLITE_FUNCTION:
		return second && !strcmp(second, "load_extension") ? refuse(w, "function", second)
								   : SQLITE_OK;
	case SQLITE_READ:
		return is_of_file(first, database) && !inner ? refuse(w, "table", first)
							     : SQLITE_OK;
	default:
		return refuse(w, "a statement other than SELECT", NULL);
	}
}

static json_t *value_of(sqlite3_stmt *stmt, int column)
{
	json_t *text;

	switch (sqlite3_column_type(stmt, column)) {
	case SQLITE_INTEGER:
		return json_integer(sqlite3_column_int64(stmt, column));
	case SQLITE_FLOAT:
		return json_real(sqlite3_column_double(stmt, column));
	case SQLITE_TEXT:
		text = json_string((const char *)sqlite3_column_text(stmt, column));
		return text ? text : json_string("(not UTF-8)");
	case SQLITE_BLOB:
		return json_string("(binary)");
	}
	return json_null();
}

static json_t *row_of(sqlite3_stmt *stmt, bool names)
{
	json_t *row = json_array();

	for (int i = 0; i < sqlite3_column_count(stmt); i++)
		json_array_append_new(
			row, names ? json_string(sqlite3_column_name(stmt, i)) : value_of(stmt, i));
	return row;
}

static int each_row(
	struct jm_store *s, sqlite3_stmt *stmt, jm_store_row_fn *fn, void *arg, struct jm_err *err)
{
	json_t *names = row_of(stmt, true), *row;
	int rc = fn(arg, names, NULL, err), got = SQLITE_DONE;

	while (!rc && (got = sqlite3_step(stmt)) == SQLITE_ROW) {
		row = row_of(stmt, false);
		rc = fn(arg, names, row, err);
		json_decref(row);
	}
	json_decref(names);
	if (!rc && got != SQLITE_DONE)
		rc = jm_err_set(err, JM_EUSAGE, "The query failed in %s: %s.", s->path,
			sqlite3_errmsg(s->db));
	return rc;
}

static int prepare(struct jm_store *s, const char *sql, sqlite3_stmt **ret, const char **ret_rest,
	struct jm_err *err)
{
	struct watch w = {""};
	const char *why;
	int rc;

	sqlite3_set_authorizer(s->db, allow, &w);
	rc = sqlite3_prepare_v2(s->db, sql, -1, ret, ret_rest);
	sqlite3_set_authorizer(s->db, NULL, NULL);
	why = sqlite3_errmsg(s->db);
	if (*w.refused)
		rc = jm_err_set(err, JM_EUSAGE,
			"A query may only read the views " VIEWS ", but it uses %s.", w.refused);
	else if (rc)
		rc = jm_err_set(err, JM_EUSAGE, "SQLite does not accept the query: %s%s.", why,
			strstr(why, "no such table") ? "; the views are " VIEWS : "");
	else if (!*ret || !sqlite3_stmt_readonly(*ret))
		rc = jm_err_set(err, JM_EUSAGE,
			"The query is not a SELECT; write it as 'SELECT ... FROM results'.");
	return rc;
}

/* The documented views of this program, before those of the file. */
static int make_views(struct jm_store *s, struct jm_err *err)
{
	char *views = jm__store_schema(true);
	char *sql = views ? sqlite3_mprintf("PRAGMA query_only=0; PRAGMA temp_store=MEMORY; %s"
					    "PRAGMA query_only=1",
				    views)
			  : NULL;
	int rc = sql ? jm__store_exec(s, sql, "making its views", err)
		     : jm_err_set(err, JM_ENOMEM, "Out of memory for a query.");

	sqlite3_free(views);
	sqlite3_free(sql);
	s->has_views = !rc;
	return rc;
}

int jm_store_query(
	struct jm_store *s, const char *sql, jm_store_row_fn *fn, void *arg, struct jm_err *err)
{
	sqlite3_stmt *stmt = NULL;
	const char *rest = "";
	int rc = s->has_views ? 0 : make_views(s, err);

	if (!rc)
		rc = prepare(s, sql, &stmt, &rest, err);

	if (!rc && rest[strspn(rest, " \t\r\n;")])
		rc = jm_err_set(err, JM_EUSAGE,
			"The query has more than one statement; give one SELECT at a time.");
	if (!rc)
		rc = each_row(s, stmt, fn, arg, err);
	sqlite3_finalize(stmt);
	return rc;
}
