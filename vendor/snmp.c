/* SPDX-License-Identifier: Apache-2.0 */
/* A session of net-snmp without its MIBs, configuration and files of its own; secrets come from
 * files. */
#include "snmp.h"
#include "secret.h"
#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#define NOWHERE "/proc/self/nowhere" /* a folder that cannot be made */

static const struct jm_symbol symbols[] = {
#define X(name) {#name, offsetof(struct jm_snmp_calls, name)},
	JM_SNMP_CALLS(X)
#undef X
};

static const struct jm_library library = {
	.title = "net-snmp",
	.variable = "JM_SNMP_LIB",
	.names = {"libnetsnmp.so.40", "libnetsnmp.so.35", "libnetsnmp.so"},
	.mend = "install libsnmp (Debian: libsnmp40) or name the file in JM_SNMP_LIB",
	.symbols = symbols,
	.n_symbols = sizeof(symbols) / sizeof(symbols[0]),
};

bool jm_snmp_parse(const char *text, struct jm_snmp_value *out)
{
	out->length = 0;
	for (const char *p = text + (*text == '.');; p++) {
		char *end;

		if (*p < '0' || *p > '9' || out->length == MAX_OID_LEN)
			return false;
		errno = 0;
		out->name[out->length++] = strtoul(p, &end, 10);
		if (errno || (*end && *end != '.'))
			return false;
		if (!*end)
			return out->length > 1;
		p = end;
	}
}

static double counter64(const struct counter64 *c)
{
	return (double)c->high * 4294967296.0 + (double)c->low;
}

/* The number in an answer. NAN: none, or one below 0, by which PDUs report that they have no
 * value. */
static double number_of(const netsnmp_variable_list *v)
{
	char text[32], *end;
	double number = NAN;

	switch (v->type) {
	case ASN_INTEGER:
		number = (double)*v->val.integer;
		break;
	case ASN_COUNTER:
	case ASN_GAUGE:
	case ASN_TIMETICKS:
		number = (double)(uint32_t)*v->val.integer;
		break;
	case ASN_COUNTER64:
		number = counter64(v->val.counter64);
		break;
	case ASN_OCTET_STR:
		if (v->val_len == 0 || v->val_len >= sizeof(text))
			break;
		memcpy(text, v->val.string, v->val_len);
		text[v->val_len] = '\0';
		if (text[strspn(text, "0123456789.")] != '\0')
			break;
		number = strtod(text, &end);
		number = *end ? NAN : number;
		break;
	default:
		break;
	}
	return number >= 0 ? number : NAN;
}

static bool same_name(const netsnmp_variable_list *v, const struct jm_snmp_value *value)
{
	return v->name_length == value->length &&
	       !memcmp(v->name, value->name, value->length * sizeof(oid));
}

static void take_answer(struct jm_snmp *s, const netsnmp_pdu *answer)
{
	s->answered = true;
	if (answer->errstat != SNMP_ERR_NOERROR)
		return;
	for (const netsnmp_variable_list *v = answer->variables; v; v = v->next_variable)
		for (int i = 0; i < s->n; i++)
			if (same_name(v, s->value[i]))
				s->out[i] = number_of(v);
}

/* A question that was given up may end here too. */
static int on_answer(int op, netsnmp_session *session, int request, netsnmp_pdu *answer, void *arg)
{
	struct jm_snmp *s = arg;

	(void)session;
	if (request != s->request || !s->waiting)
		return 1;
	if (op == NETSNMP_CALLBACK_OP_RECEIVED_MESSAGE && answer->command == SNMP_MSG_REPORT &&
		s->call.snmpv3_get_report_type(answer) == SNMPERR_NOT_IN_TIME_WINDOW)
		return 1; /* the library asks again */
	if (op == NETSNMP_CALLBACK_OP_RECEIVED_MESSAGE && answer->command == SNMP_MSG_RESPONSE)
		take_answer(s, answer);
	s->waiting = false;
	return 1;
}

static int64_t now_ns(void)
{
	return jm_clock_now(jm_clock_real());
}

/* Waits once for a message. The library repeats and gives up questions in snmp_sess_timeout, which
 * is called even when there is always a message. */
static void wait_once(struct jm_snmp *s, int64_t left_ns)
{
	struct timeval patience = {0}, most = {.tv_sec = left_ns / 1000000000,
					       .tv_usec = left_ns % 1000000000 / 1000};
	netsnmp_large_fd_set set;
	int n = 0, block = 1;

	s->call.netsnmp_large_fd_set_init(&set, FD_SETSIZE);
	s->call.snmp_sess_select_info2(s->line, &n, &set, &patience, &block);
	if (block || timercmp(&patience, &most, >))
		patience = most;
	if (s->call.netsnmp_large_fd_set_select(n, &set, NULL, NULL, &patience) > 0)
		s->call.snmp_sess_read2(s->line, &set);
	s->call.netsnmp_large_fd_set_cleanup(&set);
	s->call.snmp_sess_timeout(s->line);
}

static bool exchange(struct jm_snmp *s, netsnmp_pdu *question)
{
	int64_t until = now_ns() + s->timeout_ns, left;

	s->answered = false;
	s->request = s->call.snmp_sess_async_send(s->line, question, on_answer, s);
	s->waiting = s->request != 0;
	if (!s->waiting)
		s->call.snmp_free_pdu(question);
	while (s->waiting && (left = until - now_ns()) > 0)
		wait_once(s, left);
	s->waiting = false;
	return s->answered;
}

bool jm_snmp_ask(struct jm_snmp *s, const struct jm_snmp_value *const *value, int n, double *out)
{
	netsnmp_pdu *question = s->call.snmp_pdu_create(SNMP_MSG_GET);

	for (int i = 0; i < n; i++) {
		s->call.snmp_add_null_var(question, value[i]->name, value[i]->length);
		out[i] = NAN;
	}
	s->value = value;
	s->n = n;
	s->out = out;
	return exchange(s, question);
}

/* A password as the key of one protocol (RFC 3414, SHA-1). */
static int make_key(
	struct jm_snmp *s, const char *path, u_char *key, size_t *ret_length, struct jm_err *err)
{
	static const oid sha[] = {1, 3, 6, 1, 6, 3, 10, 1, 1, 3};
	char secret[JM_SECRET_MAX];
	int rc = jm_secret_read(path, secret, err);

	*ret_length = USM_AUTH_KU_LEN;
	if (!rc && s->call.generate_Ku(sha, sizeof(sha) / sizeof(sha[0]), (u_char *)secret,
			   strlen(secret), key, ret_length) != SNMPERR_SUCCESS)
		rc = jm_err_set(err, JM_EUSAGE,
			"The password in %s is too short; SNMPv3 needs eight characters.", path);
	explicit_bzero(secret, sizeof(secret));
	return rc;
}

static int set_user(struct jm_snmp *s, const struct jm_snmp_peer *peer, netsnmp_session *session,
	struct jm_err *err)
{
	static const oid sha[] = {1, 3, 6, 1, 6, 3, 10, 1, 1, 3};
	static const oid aes[] = {1, 3, 6, 1, 6, 3, 10, 1, 2, 4};
	const char *auth = peer->auth_file;
	const char *priv = peer->priv_file;
	int rc = 0;

	session->version = SNMP_VERSION_3;
	session->securityName = (char *)peer->user;
	session->securityNameLen = strlen(session->securityName);
	session->securityLevel = priv	? SNMP_SEC_LEVEL_AUTHPRIV
				 : auth ? SNMP_SEC_LEVEL_AUTHNOPRIV
					: SNMP_SEC_LEVEL_NOAUTH;
	if (priv && !auth)
		return jm_err_set(err, JM_EUSAGE, "priv-file of source snmp needs auth-file too.");
	session->securityAuthProto = (oid *)sha;
	session->securityAuthProtoLen = sizeof(sha) / sizeof(sha[0]);
	session->securityPrivProto = (oid *)aes;
	session->securityPrivProtoLen = sizeof(aes) / sizeof(aes[0]);
	if (auth)
		rc = make_key(s, auth, session->securityAuthKey, &session->securityAuthKeyLen, err);
	if (!rc && priv)
		rc = make_key(s, priv, session->securityPrivKey, &session->securityPrivKeyLen, err);
	return rc;
}

static int open_line(struct jm_snmp *s, const struct jm_snmp_peer *peer, struct jm_err *err)
{
	const char *file = peer->community_file;
	char address[160], community[JM_SECRET_MAX] = "public";
	netsnmp_session session;
	int rc = 0, library_error = 0, system_error = 0;

	snprintf(s->host, sizeof(s->host), "%s", peer->host);
	snprintf(address, sizeof(address), "udp:%s:%d", s->host, peer->port);
	s->call.snmp_sess_init(&session);
	session.peername = address;
	s->timeout_ns = (int64_t)(peer->timeout * 1e9);
	session.timeout = (long)(peer->timeout * 1e6 / 2);
	session.retries = 1;
	if (peer->user) {
		rc = set_user(s, peer, &session, err);
	} else {
		session.version = SNMP_VERSION_2c;
		rc = file ? jm_secret_read(file, community, err) : 0;
		session.community = (u_char *)community;
		session.community_len = strlen(community);
	}
	if (!rc)
		s->line = s->call.snmp_sess_open(&session);
	if (!rc && !s->line) {
		char *why = NULL;

		s->call.snmp_error(&session, &system_error, &library_error, &why);
		rc = jm_err_set(err, JM_ENOENT, "SNMP host %s cannot be asked: %s.", s->host,
			why ? why : "unknown error");
		free(why);
	}
	explicit_bzero(community, sizeof(community));
	explicit_bzero(&session, sizeof(session));
	return rc;
}

/* No MIBs, no configuration, no files of net-snmp's own. */
static void start_library(struct jm_snmp *s)
{
	static const int off[] = {NETSNMP_DS_LIB_DONT_READ_CONFIGS,
		NETSNMP_DS_LIB_DONT_PERSIST_STATE, NETSNMP_DS_LIB_DISABLE_PERSISTENT_LOAD,
		NETSNMP_DS_LIB_DISABLE_PERSISTENT_SAVE};

	s->call.netsnmp_register_loghandler(NETSNMP_LOGHANDLER_NONE, LOG_DEBUG);
	s->call.netsnmp_set_mib_directory(NOWHERE);
	s->call.set_persistent_directory(NOWHERE);
	for (size_t i = 0; i < sizeof(off) / sizeof(off[0]); i++)
		s->call.netsnmp_ds_set_boolean(NETSNMP_DS_LIBRARY_ID, off[i], 1);
	s->call.init_snmp("joulemark");
}

int jm_snmp_open(struct jm_snmp *snmp, const struct jm_snmp_peer *peer, struct jm_err *err)
{
	int rc = jm_library_open(&library, &snmp->call, err);

	if (rc)
		return rc;
	start_library(snmp);
	return open_line(snmp, peer, err);
}

void jm_snmp_close(struct jm_snmp *snmp)
{
	if (snmp->line)
		snmp->call.snmp_sess_close(snmp->line);
	snmp->line = NULL;
}
