/* Stand-in programs for the test images; the name it is called by chooses:
 *   nginx, httpd   web server on $PORT (default 80), one page for every request
 *   pgrep NAME     pids of the processes whose name contains NAME
 *   ipcs           System V shared memory (these two are no applets in Debian's busybox)
 *   pause          reaps children and waits for a signal
 *   nonewprivs     prints the effective user id (installed set-user-id root)
 *   spin           uses all the CPU time it is given, until a signal
 *   hold A FILE B  holds A MiB of anonymous memory and reads B MiB of FILE, which
 *                  it writes first, again and again; until a signal
 *   sh             "sh -c WORDS" with plain words only: execs the program from
 *                  $PATH; all else goes to busybox sh. Needed because a busybox
 *                  with FEATURE_SH_STANDALONE never looks at /bin/ls for "ls".
 */
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void quit(int sig) { (void)sig; _exit(0); }

static void reap(int sig) { (void)sig; while (waitpid(-1, NULL, WNOHANG) > 0) ; }

static int web(const char *name, const char *self)
{
	int port = getenv("PORT") ? atoi(getenv("PORT")) : 80, one = 1;
	int nginx = !strcmp(name, "nginx");
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };

	if (nginx && strncmp(self, "nginx: master", 13)) {
		char *argv[] = { "nginx: master process nginx -g daemon off;", NULL };
		execv("/usr/sbin/nginx", argv);
	}
	if (nginx) {
		FILE *f = fopen("/var/run/nginx.pid", "w");
		if (f) { fprintf(f, "%d\n", (int)getpid()); fclose(f); }
	}
	signal(SIGTERM, quit); signal(SIGQUIT, quit); signal(SIGINT, quit);
	signal(SIGCHLD, SIG_IGN); signal(SIGPIPE, SIG_IGN);
	int s = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(s, (struct sockaddr *)&a, sizeof a) || listen(s, 64)) { perror(name); return 1; }
	fprintf(stderr, "[notice] %s stand-in listens on port %d\n", name, port);
	for (;;) {
		int c = accept(s, NULL, NULL);
		if (c < 0) continue;
		if (fork() == 0) {
			char buf[4096]; size_t n = 0; ssize_t r;
			alarm(60);
			while (n < sizeof buf - 1 && (r = read(c, buf + n, sizeof buf - 1 - n)) > 0) {
				buf[n += r] = 0;
				if (strstr(buf, "\r\n\r\n")) break;
			}
			static const char page[] = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 14\r\nConnection: close\r\n\r\n<h1>works</h1>";
			if (n && write(c, page, sizeof page - 1) < 0) _exit(1);
			shutdown(c, SHUT_WR);
			while (read(c, buf, sizeof buf) > 0) ;
			_exit(0);
		}
		close(c);
	}
}

static int shell(int argc, char **argv)
{
	static const char *builtin[] = { "echo", "exit", "exec", "cd", "true", "false", "test", "read", "set",
		"export", "ulimit", "umask", "wait", "trap", "type", "command", "kill", "printf", "pwd", "eval", "if",
		"while", "for", "case", "until", "return", "shift", "unset", "times", "jobs", "hash", "alias", "help", NULL };
	if (argc == 3 && !strcmp(argv[1], "-c") &&
	    !argv[2][strspn(argv[2], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789./_- ")]) {
		char *word[64] = { 0 }, *copy = strdup(argv[2]);
		int n = 0, plain = 1;
		for (char *w = strtok(copy, " "); w && n < 63; w = strtok(NULL, " ")) word[n++] = w;
		for (int i = 0; n && builtin[i]; i++) plain &= strcmp(word[0], builtin[i]) != 0;
		if (n && n < 63 && plain) {
			execvp(word[0], word);
			fprintf(stderr, "%s: %s: %s\n", argv[0], word[0], errno == ENOENT ? "not found" : strerror(errno));
			return errno == ENOENT ? 127 : 126;
		}
	}
	execv("/bin/busybox", argv);	/* argv[0] ends in "sh": busybox runs its sh */
	perror("/bin/busybox");
	return 127;
}

static int hold(long anonymous, const char *path, long cached)
{
	enum { MIB = 1 << 20 };
	static char block[MIB];
	char *memory = malloc((size_t)anonymous * MIB);
	FILE *f = fopen(path, "w+");

	if (!memory || !f) { perror("hold"); return 1; }
	memset(memory, 1, (size_t)anonymous * MIB);
	for (long i = 0; i < cached; i++)
		if (fwrite(block, 1, MIB, f) != MIB) { perror(path); return 1; }
	if (fflush(f) || fsync(fileno(f))) { perror(path); return 1; }
	puts("held"); fflush(stdout);
	for (;;) {
		rewind(f);
		for (long i = 0; i < cached; i++) if (fread(block, 1, MIB, f) != MIB) { perror(path); return 1; }
		/* The compiler must not find out that nobody reads the memory. */
		__asm__ volatile("" : : "r"(memory) : "memory");
		sleep(1);
	}
}

static int pgrep(const char *want)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	char path[300], comm[64];
	int found = 0;

	while (d && (e = readdir(d))) {
		if (strspn(e->d_name, "0123456789") != strlen(e->d_name) || atoi(e->d_name) == getpid()) continue;
		snprintf(path, sizeof path, "/proc/%s/comm", e->d_name);
		FILE *f = fopen(path, "r");
		if (f && fgets(comm, sizeof comm, f) && strstr(comm, want)) { puts(e->d_name); found = 1; }
		if (f) fclose(f);
	}
	return !found;
}

static int ipcs(void)
{
	FILE *f = fopen("/proc/sysvipc/shm", "r");
	char line[512];
	unsigned long long size;
	int key, id, perms;

	puts("\n------ Shared Memory Segments --------\nkey        shmid      perms      bytes");
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "%d %d %o %llu", &key, &id, &perms, &size) == 4)
			printf("0x%08x %-10d %-10o %llu\n", key, id, perms, size);
	return 0;
}

int main(int argc, char **argv)
{
	const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];

	if (!strncmp(argv[0], "nginx", 5) || !strcmp(name, "nginx")) return web("nginx", argv[0]);
	if (!strcmp(name, "httpd")) return web("httpd", argv[0]);
	if (!strcmp(name, "pause")) {
		signal(SIGTERM, quit); signal(SIGINT, quit); signal(SIGCHLD, reap);
		for (;;) pause();
	}
	if (!strcmp(name, "spin")) {
		signal(SIGTERM, quit); signal(SIGINT, quit);
		for (volatile unsigned long turns = 0;; turns++) ;
	}
	if (!strcmp(name, "hold") && argc == 4) {
		signal(SIGTERM, quit); signal(SIGINT, quit);
		return hold(atol(argv[1]), argv[2], atol(argv[3]));
	}
	if (!strcmp(name, "pgrep") && argc == 2) return pgrep(argv[1]);
	if (!strcmp(name, "ipcs")) return ipcs();
	if (!strcmp(name, "nonewprivs")) { printf("Effective uid: %d\n", (int)geteuid()); return 0; }
	if (!strcmp(name, "sh") || !strcmp(name, "-sh")) return shell(argc, argv);
	fprintf(stderr, "stand-in: called as %s\n", argv[0]);
	return 2;
}
