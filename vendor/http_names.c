/* SPDX-License-Identifier: Apache-2.0 */
#include "http_names.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static void add(struct jm_http_names *names, const char *name, size_t n)
{
	while (n && name[n - 1] == '.')
		n--;
	if (n && n < JM_HTTP_NAME_SIZE && names->n < JM_HTTP_NAMES)
		snprintf(names->name[names->n++], JM_HTTP_NAME_SIZE, "%.*s", (int)n, name);
}

/* As this machine calls itself, that without its domain, and the whole name that the resolver gives
 * it. */
static void add_own(struct jm_http_names *names)
{
	struct addrinfo hints = {.ai_flags = AI_CANONNAME}, *found = NULL;
	char name[JM_HTTP_NAME_SIZE] = "";

	if (gethostname(name, sizeof(name) - 1))
		return;
	add(names, name, strlen(name));
	add(names, name, strcspn(name, "."));
	if (getaddrinfo(name, NULL, &hints, &found))
		return;
	if (found->ai_canonname)
		add(names, found->ai_canonname, strlen(found->ai_canonname));
	freeaddrinfo(found);
}

void jm_http_names_init(struct jm_http_names *names, const char *more, bool is_any)
{
	*names = (struct jm_http_names){0};
	for (size_t n; more && *more; more += n + (more[n] == ',')) {
		n = strcspn(more, ",");
		add(names, more, n);
	}
	if (is_any)
		add_own(names);
}

/* An address without its port and brackets, or a name without its port and last dot. False: too
 * long. */
static bool without_port(const char *host, char *out, size_t size)
{
	const char *colon = strchr(host, ':');
	size_t n = strlen(host);

	if (*host == '[')
		n = strcspn(++host, "]");
	else if (colon && !strchr(colon + 1, ':'))
		n = (size_t)(colon - host);
	if (*host != '[' && n && host[n - 1] == '.')
		n--;
	if (n >= size)
		return false;
	memcpy(out, host, n);
	out[n] = '\0';
	return true;
}

/* Both kinds of addresses as IPv6, where those of IPv4 have a range. */
static bool as_v6(const char *text, struct in6_addr *ret)
{
	char mapped[INET6_ADDRSTRLEN + 8];
	struct in_addr v4;

	if (inet_pton(AF_INET, text, &v4) != 1)
		return inet_pton(AF_INET6, text, ret) == 1;
	snprintf(mapped, sizeof(mapped), "::ffff:%.20s", text);
	return inet_pton(AF_INET6, mapped, ret) == 1;
}

static bool is_loopback(const struct in6_addr *a)
{
	return IN6_IS_ADDR_LOOPBACK(a) || (IN6_IS_ADDR_V4MAPPED(a) && a->s6_addr[12] == 127);
}

static bool is_address(const struct in6_addr *a, const struct sockaddr *own)
{
	char text[INET6_ADDRSTRLEN];
	struct in6_addr mine;
	const void *bytes = own->sa_family == AF_INET
				    ? (const void *)&((const struct sockaddr_in *)own)->sin_addr
				    : (const void *)&((const struct sockaddr_in6 *)own)->sin6_addr;

	return inet_ntop(own->sa_family, bytes, text, sizeof(text)) && as_v6(text, &mine) &&
	       IN6_ARE_ADDR_EQUAL(a, &mine);
}

bool jm_http_names_know(const struct jm_http_names *names, const char *host, int fd)
{
	struct sockaddr_storage own = {0};
	socklen_t size = sizeof(own);
	char text[JM_HTTP_NAME_SIZE];
	struct in6_addr address;

	if (!host)
		return true;
	if (!without_port(host, text, sizeof(text)))
		return false;
	if (as_v6(text, &address))
		return is_loopback(&address) ||
		       (!getsockname(fd, (struct sockaddr *)&own, &size) &&
			       is_address(&address, (struct sockaddr *)&own));
	for (int i = 0; i < names->n; i++)
		if (!strcasecmp(text, names->name[i]))
			return true;
	return !strcasecmp(text, "localhost");
}

int jm_http_address(const char *text, int port, struct sockaddr_storage *ret, struct jm_err *err)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;

	*ret = (struct sockaddr_storage){0};
	if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons((uint16_t)port);
		return 0;
	}
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons((uint16_t)port);
	if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1)
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"'%s' is no IPv4 or IPv6 address; 127.0.0.1 is this machine alone, 0.0.0.0 all of "
		"its addresses.",
		text);
}

int jm_http_cannot_listen(const char *address, int port, struct jm_err *err)
{
	return jm_err_set(err, errno == EACCES ? JM_EPERM : JM_EIO,
		"Cannot listen on %s port %d: %s.", address, port,
		errno ? strerror(errno) : "libmicrohttpd gives no reason");
}

bool jm_http_address_is_any(const struct sockaddr_storage *address)
{
	return address->ss_family == AF_INET
		       ? !((const struct sockaddr_in *)address)->sin_addr.s_addr
		       : IN6_IS_ADDR_UNSPECIFIED(
				 &((const struct sockaddr_in6 *)address)->sin6_addr);
}
