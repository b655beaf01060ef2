/* Baseline: NNG's performance in C, without Python.
 *
 *   floor push URL SIZE SECONDS PROCESSES    saturate a puller, blocking, with a send buffer of 1024
 *   floor plain ...       the same without a send buffer
 *   floor pull ...        one receive at a time
 *   floor ring ...        64 receives posted ahead
 *   floor reply ...       reply to requests
 *   floor ask ...         one request at a time
 *   floor subscribe ...   eight subscribers, one posted receive each
 *
 * pull, ring and reply listen and print the address as a line of JSON, followed by the figures (see _measuring.py).
 * PROCESSES is a file with the ids of all processes of the measurement, one a line. Messages are numbered as in
 * _numbered.py, and a wrong one ends the program. It links the system's NNG, which may be older than pynng's.
 */
#define _GNU_SOURCE
#include <endian.h>
#include <nng/nng.h>
#include <nng/protocol/pipeline0/pull.h>
#include <nng/protocol/pipeline0/push.h>
#include <nng/protocol/pubsub0/sub.h>
#include <nng/protocol/reqrep0/rep.h>
#include <nng/protocol/reqrep0/req.h>
#include <nng/supplemental/util/platform.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define RUN_IN 0.25
#define POSTED 64
#define SAMPLES 2000
#define SUBSCRIBERS 8
#define LOOK 10 /* ms between samples of the subscribers */
#define TURN 4099 /* numbers that repeat; fewer of large messages: TURN and LARGE_TURN of _numbered.py */
#define LARGE_TURN 17
#define LARGE 65536
#define PROCESSES 16

static void check(int code, const char *what)
{
	if (code != 0) {
		fprintf(stderr, "%s: %s\n", what, nng_strerror(code));
		exit(1);
	}
}

static double clock_of(clockid_t id)
{
	struct timespec t;
	clock_gettime(id, &t);
	return (double) t.tv_sec + (double) t.tv_nsec * 1e-9;
}

static const char *processes; /* the file */
static pid_t       others[PROCESSES];
static int         other_count;

static void find_others(void)
{
	FILE *listed = fopen(processes, "r");
	int   pid;
	for (other_count = 0; listed != NULL && fscanf(listed, "%d", &pid) == 1 && other_count < PROCESSES;) {
		if (pid != getpid()) {
			others[other_count++] = pid;
		}
	}
	if (listed != NULL) {
		fclose(listed);
	}
}

static double others_cpu(void)
{
	double    sum = 0;
	clockid_t id;
	for (int i = 0; i < other_count; i++) {
		if (clock_getcpuclockid(others[i], &id) == 0) {
			sum += clock_of(id);
		}
	}
	return sum;
}

static uint64_t turn_of(size_t size) { return size < LARGE ? TURN : LARGE_TURN; }

/* The next message of a sender. */
static nng_msg *numbered(size_t size)
{
	static uint64_t number;
	nng_msg        *m;
	uint64_t        head = htobe64(number++ % turn_of(size));
	check(nng_msg_alloc(&m, size), "message");
	memset(nng_msg_body(m), 'x', size);
	memcpy(nng_msg_body(m), &head, sizeof(head));
	return m;
}

/* Check and free the next message of a receiver. */
static void take(nng_msg *m, size_t size)
{
	static uint64_t number;
	uint64_t        head;
	memcpy(&head, nng_msg_body(m), sizeof(head));
	if (nng_msg_len(m) != size || be64toh(head) != number++ % turn_of(size)) {
fprintf(stderr, "wrong message: number %llu, %zu bytes, after %llu messages\n",
		    (unsigned long long) be64toh(head), nng_msg_len(m), (unsigned long long) number - 1);
		exit(1);
	}
	nng_msg_free(m);
}

static double now(void) { return clock_of(CLOCK_MONOTONIC); }
static double cpu(void) { return clock_of(CLOCK_PROCESS_CPUTIME_ID); }

static void listen_and_report(nng_socket s, const char *url)
{
	nng_listener l;
	check(nng_listen(s, url, &l, 0), "listen");
	if (strncmp(url, "tcp", 3) == 0) {
		int port;
		check(nng_listener_get_int(l, NNG_OPT_TCP_BOUND_PORT, &port), "port");
		printf("{\"url\": \"tcp://127.0.0.1:%d\"}\n", port);
	} else {
		printf("{\"url\": \"%s\"}\n", url);
	}
	fflush(stdout);
}

static void push(const char *url, size_t size, int buffer)
{
	nng_socket s;
	check(nng_push0_open(&s), "push");
	check(nng_socket_set_int(s, NNG_OPT_SENDBUF, buffer), "send buffer");
	check(nng_dial(s, url, NULL, 0), "dial");
	for (;;) {
		if (nng_sendmsg(s, numbered(size), 0) != 0) {
			return;
		}
	}
}

static int    counting;
static double part; /* share of published messages that arrived */

/* Count as Meter of _child.py. */
static int add(double seconds, long units)
{
	static double begin, end, used, others_used;
	static long count;
	double t = now();
	if (begin == 0) {
		begin = t + RUN_IN;
	}
	if (end == 0) {
		if (t >= begin) {
			begin = t;
			end = t + seconds;
			find_others();
			others_used = others_cpu();
			used = cpu();
			counting = 1;
		}
		return 1;
	}
	count += units;
	if (t < end) {
		return 1;
	}
	used = (cpu() - used) / (double) count * 1e6;
	others_used = (others_cpu() - others_used) / (double) count * 1e6;
	printf("{\"per_second\": %.1f, \"cpu_us\": %.3f, \"other_us\": %.3f, \"all_us\": %.3f",
	    (double) count / (t - begin), used, others_used, used + others_used);
	if (part > 0) {
		printf(", \"part\": %.4f", part);
	}
	printf("}\n");
	fflush(stdout);
	return 0;
}

static void pull(const char *url, size_t size, double seconds)
{
	nng_socket s;
	check(nng_pull0_open(&s), "pull");
	listen_and_report(s, url);
	do {
		for (int i = 0; i < 16; i++) {
			nng_msg *m;
			check(nng_recvmsg(s, &m, 0), "receive");
			take(m, size);
		}
	} while (add(seconds, 16));
}

static void ring(const char *url, size_t size, double seconds)
{
	nng_socket s;
	nng_aio   *aio[POSTED];
	check(nng_pull0_open(&s), "pull");
	listen_and_report(s, url);
	for (int i = 0; i < POSTED; i++) {
		check(nng_aio_alloc(&aio[i], NULL, NULL), "aio");
		nng_recv_aio(s, aio[i]);
	}
	for (int head = 0;;) {
		nng_aio_wait(aio[head]);
		check(nng_aio_result(aio[head]), "receive");
		take(nng_aio_get_msg(aio[head]), size);
		nng_aio_set_msg(aio[head], NULL);
		nng_recv_aio(s, aio[head]);
		head = (head + 1) % POSTED;
		if (head % 16 == 0 && !add(seconds, 16)) {
			return;
		}
	}
}

struct subscriber {
	nng_socket s;
	nng_aio   *aio;
	nng_mtx   *lock;
	uint64_t   count, last;
};

static void heard(void *arg)
{
	struct subscriber *sub = arg;
	nng_msg           *m = nng_aio_get_msg(sub->aio);
	uint64_t           number;
	if (nng_aio_result(sub->aio) != 0) {
		return;
	}
	memcpy(&number, nng_msg_body(m), sizeof(number));
	nng_mtx_lock(sub->lock);
	if (be64toh(number) <= sub->last) {
fprintf(stderr, "messages out of order or duplicated after %llu\n", (unsigned long long) sub->last);
		_exit(1);
	}
	sub->count++;
	sub->last = be64toh(number);
	nng_mtx_unlock(sub->lock);
	nng_msg_free(m);
	nng_recv_aio(sub->s, sub->aio);
}

/* Count as Audience of _numbered.py. */
static void subscribe(const char *url, double seconds)
{
	static struct subscriber sub[SUBSCRIBERS];
uint64_t                 count[3] = { 0 }, last[3] = { 0 }; /* at the start, at the last sample, now */
	for (int i = 0; i < SUBSCRIBERS; i++) {
		check(nng_sub0_open(&sub[i].s), "sub");
		check(nng_socket_set_int(sub[i].s, NNG_OPT_RECVBUF, 1024), "receive buffer");
		check(nng_socket_set(sub[i].s, NNG_OPT_SUB_SUBSCRIBE, "", 0), "subscribe");
		check(nng_mtx_alloc(&sub[i].lock), "lock");
		check(nng_aio_alloc(&sub[i].aio, heard, &sub[i]), "aio");
		check(nng_dial(sub[i].s, url, NULL, 0), "dial");
		nng_recv_aio(sub[i].s, sub[i].aio);
	}
	do {
		nng_msleep(LOOK);
		count[1] = count[2];
		count[2] = last[2] = 0;
		for (int i = 0; i < SUBSCRIBERS; i++) {
			nng_mtx_lock(sub[i].lock);
			count[2] += sub[i].count;
			last[2] += sub[i].last;
			nng_mtx_unlock(sub[i].lock);
		}
		if (!counting) {
			count[0] = count[2];
			last[0] = last[2];
		}
		part = (double) (count[2] - count[0]) / (double) (last[2] - last[0] + 1);
	} while (add(seconds, (long) (count[2] - count[1])));
}

static void reply(const char *url)
{
	nng_socket s;
	check(nng_rep0_open(&s), "rep");
	listen_and_report(s, url);
	for (;;) {
		nng_msg *m;
		if (nng_recvmsg(s, &m, 0) != 0 || nng_sendmsg(s, m, 0) != 0) {
			return;
		}
	}
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *) a, y = *(const double *) b;
	return (x > y) - (x < y);
}

static void ask(const char *url, size_t size, double seconds)
{
	nng_socket s;
	size_t     room = 4000000, n = 0;
	double    *took = malloc(room * sizeof(*took)), start = 0, used = 0, others_used = 0;
	check(nng_req0_open(&s), "req");
	check(nng_dial(s, url, NULL, 0), "dial");
	for (long done = -SAMPLES / 10; n < room && (n < SAMPLES || now() - start < seconds); done++) {
		nng_msg *m;
		double   t = now();
		check(nng_sendmsg(s, numbered(size), 0), "send");
		check(nng_recvmsg(s, &m, 0), "receive");
		take(m, size);
		if (done < 0) {
			find_others();
			others_used = others_cpu();
			start = now();
			used = cpu();
		} else {
			took[n++] = now() - t;
		}
	}
	used = (cpu() - used) / (double) n * 1e6;
	others_used = (others_cpu() - others_used) / (double) n * 1e6;
	qsort(took, n, sizeof(*took), compare);
	printf("{\"p50_us\": %.2f, \"p99_us\": %.2f, \"cpu_us\": %.3f, \"other_us\": %.3f, \"all_us\": %.3f}\n",
	    took[n / 2] * 1e6, took[n * 99 / 100] * 1e6, used, others_used, used + others_used);
	fflush(stdout);
}

int main(int count, char **words)
{
	if (count != 6) {
		fprintf(stderr, "floor push|plain|pull|ring|reply|ask|subscribe URL SIZE SECONDS PROCESSES\n");
		return 2;
	}
	const char *mode = words[1], *url = words[2];
	size_t      size = (size_t) atol(words[3]);
	double      seconds = atof(words[4]);
	processes = words[5];
	if (strcmp(mode, "push") == 0) {
		push(url, size, 1024);
	} else if (strcmp(mode, "plain") == 0) {
		push(url, size, 0);
	} else if (strcmp(mode, "pull") == 0) {
		pull(url, size, seconds);
	} else if (strcmp(mode, "ring") == 0) {
		ring(url, size, seconds);
	} else if (strcmp(mode, "reply") == 0) {
		reply(url);
	} else if (strcmp(mode, "ask") == 0) {
		ask(url, size, seconds);
	} else if (strcmp(mode, "subscribe") == 0) {
		subscribe(url, seconds);
	} else {
		return 2;
	}
	exit(0);
}
