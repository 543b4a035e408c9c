/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow view`: the page of a trace in a browser, or served to one on another machine.
 * Does not: make the page; `fallow report` does.
 *
 * The server listens on the loopback alone, and gives the page to those who know its address, which has 128 random
 * bits: other users of this machine can connect, but not read. A request that names another host is refused, so that
 * no web site can be made to stand for this one. Each connection has a process of its own, for browsers open some
 * that they leave idle.
 *
 * The page is made by a process of its own too, and signals that end this program are blocked and taken where it
 * waits: so the page's folder is removed, whenever they come.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/command.h"
#include "common/options.h"
#include "common/tool_host.h"

#define PATH_BYTES     4096
#define REQUEST_BYTES  8192
#define TOKEN_BYTES    33 /* 128 bits in hexadecimal */
#define CLIENT_SECONDS 10 /* that a client may keep the others waiting for a read or a write */
#define CLIENTS_MOST   16
#define OPTIONS_MOST   64

static const char help[] =
    "usage: fallow view FILE [OPTIONS] [OPTIONS OF fallow report]\n\n"
    "The page of fallow report in a browser. FILE is a trace, or a page that ends in .html. Where there\n"
    "is a display (DISPLAY or WAYLAND_DISPLAY), xdg-open opens it. Elsewhere it is served to this\n"
    "machine alone, at an address that cannot be guessed, until Ctrl-C; what is printed says how a\n"
    "browser on another machine comes there. The page that is made lies in a folder of its own in\n"
    "TMPDIR or /tmp, which only its user can read; it is removed when serving ends.\n\n"
    "  --serve               serve it, display or not\n"
    "  --port N              serve it there; default a free one\n\n"
    "example: fallow view snapshot.pickle\n";

struct view {
    bool serves;
    uint64_t port;
    char folder[PATH_BYTES]; /* of the page that was made; "": none was */
    char page[PATH_BYTES + 16];
    char *bytes; /* of the page */
    size_t length;
    char token[TOKEN_BYTES];
    sigset_t mask;     /* of signals, as this program was given it */
    int ending_signal; /* that came before there was anything to serve; 0 */
};

static const struct flw_option option_list[] = {
    {.name = "serve", .kind = FLW_OPTION_SET, .offset = offsetof(struct view, serves)},
    {.name = "port",
     .kind = FLW_OPTION_COUNT,
     .offset = offsetof(struct view, port),
     .least = 1,
     .most = 65535},
    {.name = NULL}};

/* ---- processes of its own ---- */

/* What this program was told to ignore, as by nohup, is none: blocked, it would be taken all the same. */
static void add_endings(sigset_t *set)
{
    static const int endings[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        struct sigaction told;
        if (sigaction(endings[i], NULL, &told) == 0 && told.sa_handler != SIG_IGN) {
            sigaddset(set, endings[i]);
        }
    }
}

static sigset_t awaited_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    add_endings(&set);
    sigaddset(&set, SIGCHLD);
    return set;
}

/* Ends with this program, and takes signals as this one was told to. As fork. */
static pid_t start_child(const struct view *view)
{
    fflush(stdout); /* what is not written yet is not the child's to write */
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        sigprocmask(SIG_SETMASK, &view->mask, NULL);
    }
    return child;
}

/* The child's end, as waitpid tells it. A signal that ends this program ends the child. */
static int await_child(struct view *view, pid_t child)
{
    sigset_t awaited = awaited_signals();
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        int number = sigwaitinfo(&awaited, NULL);
        if (number > 0 && number != SIGCHLD) {
            view->ending_signal = number;
            kill(child, SIGTERM);
        }
    }
    return status;
}

/* ---- the page ---- */

static bool is_page(const char *file)
{
    size_t length = strlen(file);
    return length > 5 && strcasecmp(file + length - 5, ".html") == 0;
}

static bool make_folder(struct view *view)
{
    const char *place = getenv("TMPDIR");
    place = place == NULL || place[0] == '\0' ? "/tmp" : place;
    int length = snprintf(view->folder, sizeof view->folder, "%s/fallow-view-XXXXXX", place);
    if (length >= (int)sizeof view->folder || mkdtemp(view->folder) == NULL) {
        flw_complain("cannot make a folder in '%.300s': %s; TMPDIR can name another place", place,
                     strerror(length >= (int)sizeof view->folder ? ENAMETOOLONG : errno));
        view->folder[0] = '\0';
        return false;
    }
    snprintf(view->page, sizeof view->page, "%s/page.html", view->folder);
    return true;
}

/* By `fallow report`, in a process that may be ended at any time. Its exit code. */
static int report_apart(struct view *view, int count, const char **arguments)
{
    pid_t child = start_child(view);
    if (child == 0) {
        int code = flw_command_report_one(count, (char **)arguments);
        _exit(fflush(stdout) == 0 ? code : FLW_EXIT_FAILED);
    }
    int status = child > 0 ? await_child(view, child) : 0;
    if (child < 0) {
        flw_complain("cannot make a process: %s", strerror(errno));
    } else if (WIFSIGNALED(status) && view->ending_signal == 0) {
        flw_complain("the page was not made: %s", strsignal(WTERMSIG(status)));
    }
    return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : FLW_EXIT_FAILED;
}

/* An exit code; where it is not FLW_EXIT_OK, that was said. */
static int make_page(struct view *view, const char *file, int option_count, char **options)
{
    const char *arguments[OPTIONS_MOST + 8] = {"report"};
    int count = 1;
    if (option_count > OPTIONS_MOST) {
        flw_complain("view takes at most %d options of report", OPTIONS_MOST);
        return FLW_EXIT_USAGE;
    }
    if (!make_folder(view)) {
        return FLW_EXIT_FAILED;
    }
    for (int i = 0; i < option_count; i++) {
        arguments[count++] = options[i];
    }
    arguments[count++] = "--html";
    arguments[count++] = view->page;
    arguments[count++] = "--";
    arguments[count++] = file;
    return report_apart(view, count, arguments);
}

/* With what a report that was ended left beside it. */
static void remove_page(const struct view *view)
{
    DIR *folder = view->folder[0] != '\0' ? opendir(view->folder) : NULL;
    if (folder != NULL) {
        for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
            (void)unlinkat(dirfd(folder), entry->d_name, 0);
        }
        closedir(folder);
        rmdir(view->folder);
    }
}

/* False: it has complained. */
static bool read_page(struct view *view)
{
    struct stat about;
    FILE *file = fopen(view->page, "re");
    bool is_read = file != NULL && fstat(fileno(file), &about) == 0;
    if (is_read) {
        view->length = (size_t)about.st_size;
        view->bytes = flw_host_alloc(view->length, 1);
        is_read = fread(view->bytes, 1, view->length, file) == view->length;
    }
    if (!is_read) {
        flw_complain("cannot read '%.300s': %s", view->page,
                     errno != 0 ? strerror(errno) : "it became shorter meanwhile");
    }
    if (file != NULL) {
        fclose(file);
    }
    return is_read;
}

/* ---- a browser here ---- */

static bool has_display(void)
{
    const char *x = getenv("DISPLAY");
    const char *wayland = getenv("WAYLAND_DISPLAY");
    return (x != NULL && x[0] != '\0') || (wayland != NULL && wayland[0] != '\0');
}

/* False: there is no xdg-open, or it found no browser. */
static bool open_browser(struct view *view)
{
    const char *arguments[] = {"xdg-open", view->page, NULL};
    pid_t child = start_child(view);
    if (child == 0) {
        flw_signals_restore();
        execvp(arguments[0], (char *const *)arguments);
        _exit(127);
    }
    int status = child > 0 ? await_child(view, child) : 0;
    return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* ---- serving ---- */

static bool make_token(char *out)
{
    unsigned char random[TOKEN_BYTES / 2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        return false;
    }
    for (size_t i = 0; i < sizeof random; i++) {
        snprintf(out + 2 * i, 3, "%02x", random[i]);
    }
    return true;
}

/* A socket that listens on the loopback; -1. `port` 0: a free one, which is said. */
static int listen_here(uint64_t *port)
{
    struct sockaddr_in place = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)*port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof place;
    int on = 1;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool listens =
        listener >= 0 && setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(listener, (struct sockaddr *)&place, bytes) == 0 && listen(listener, 16) == 0 &&
        getsockname(listener, (struct sockaddr *)&place, &bytes) == 0;
    if (!listens) {
        flw_complain("cannot serve on 127.0.0.1, port %u: %s; --port can name another",
                     (unsigned)*port, strerror(errno));
        if (listener >= 0) {
            close(listener);
        }
        return -1;
    }
    *port = ntohs(place.sin_port);
    return listener;
}

static void send_all(int client, const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t n = send(client, bytes, length, MSG_NOSIGNAL);
        if (n <= 0 && errno != EINTR) {
            return; /* gone, or too slow */
        }
        bytes += n > 0 ? n : 0;
        length -= n > 0 ? (size_t)n : 0;
    }
}

static void answer(int client, const char *status, const char *type, const char *bytes,
                   size_t length, bool has_body)
{
    char head[512];
    int head_bytes =
        snprintf(head, sizeof head,
                 "HTTP/1.1 %s\r\nContent-Type: %s; charset=utf-8\r\nContent-Length: %zu\r\n"
                 "Connection: close\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
                 "X-Content-Type-Options: nosniff\r\nContent-Security-Policy: default-src 'none'; "
                 "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\r\n\r\n",
                 status, type, length);
    send_all(client, head, (size_t)head_bytes);
    if (has_body) {
        send_all(client, bytes, length);
    }
}

/* The value of a field of the head, and how long it is; NULL: there is none. */
static const char *find_field(const char *head, const char *name, size_t *out_length)
{
    size_t name_bytes = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line != NULL; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, name_bytes) == 0 && line[name_bytes] == ':') {
            const char *value = line + name_bytes + 1;
            value += strspn(value, " \t");
            *out_length = strcspn(value, " \t\r");
            return value;
        }
    }
    return NULL;
}

/* By whatever port: a tunnel may begin at another one. */
static bool is_for_this_host(const char *head)
{
    static const char *const names[] = {"127.0.0.1", "localhost"};
    size_t length = 0;
    const char *host = find_field(head, "Host", &length);
    for (size_t i = 0; host != NULL && i < sizeof names / sizeof *names; i++) {
        size_t bytes = strlen(names[i]);
        if (length >= bytes && strncasecmp(host, names[i], bytes) == 0 &&
            (length == bytes || host[bytes] == ':')) {
            return true;
        }
    }
    return false;
}

/* Whether the path is "/TOKEN/". Takes as long for any. */
static bool knows_token(const struct view *view, const char *path)
{
    unsigned char differs = 0;
    size_t length = strcspn(path, " ?\r\n");
    if (length != TOKEN_BYTES + 1 || path[0] != '/' || path[TOKEN_BYTES] != '/') {
        return false;
    }
    for (size_t i = 0; i < TOKEN_BYTES - 1; i++) {
        differs |= (unsigned char)(path[1 + i] ^ view->token[i]);
    }
    return differs == 0;
}

/* The head of a request, ended by 0; false: none came, or too much, or too slowly. */
static bool read_head(int client, char *head)
{
    size_t length = 0;
    time_t until = time(NULL) + CLIENT_SECONDS;
    head[0] = '\0';
    while (strstr(head, "\r\n\r\n") == NULL) {
        ssize_t n = recv(client, head + length, REQUEST_BYTES - 1 - length, 0);
        if (n <= 0 || memchr(head + length, '\0', (size_t)n) != NULL || time(NULL) > until) {
            return false;
        }
        length += (size_t)n;
        head[length] = '\0';
        if (length == REQUEST_BYTES - 1) {
            return false;
        }
    }
    return true;
}

static void serve_client(const struct view *view, int client)
{
    static const char none[] = "there is nothing here; fallow view printed the whole address\n";
    struct timeval patience = {.tv_sec = CLIENT_SECONDS};
    char head[REQUEST_BYTES];
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (!read_head(client, head)) {
        return;
    }
    bool gets = strncmp(head, "GET ", 4) == 0;
    if (!gets && strncmp(head, "HEAD ", 5) != 0) {
        answer(client, "405 Method Not Allowed", "text/plain", none, sizeof none - 1, true);
    } else if (!is_for_this_host(head)) {
        answer(client, "403 Forbidden", "text/plain", none, sizeof none - 1, gets);
    } else if (!knows_token(view, strchr(head, ' ') + 1)) {
        answer(client, "404 Not Found", "text/plain", none, sizeof none - 1, gets);
    } else {
        answer(client, "200 OK", "text/html", view->bytes, view->length, gets);
    }
}

static void say_where(const struct view *view, const char *file)
{
    char host[256] = "HOST";
    gethostname(host, sizeof host - 1);
    printf("the page of %s: http://127.0.0.1:%u/%s/\n"
           "for a browser on another machine, there: ssh -N -L %u:127.0.0.1:%u %s\n"
           "Ctrl-C ends it\n",
           file, (unsigned)view->port, view->token, (unsigned)view->port, (unsigned)view->port,
           host);
    fflush(stdout);
}

static int serve_apart(const struct view *view, int listener)
{
    int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    pid_t child = client < 0 ? -1 : start_child(view);
    if (child == 0) {
        close(listener);
        serve_client(view, client);
        _exit(0);
    }
    if (client >= 0) {
        close(client);
    }
    return child > 0;
}

/* Until a signal ends it. Where there are as many clients as it serves, the others wait to be accepted. */
static void serve_all(const struct view *view, int listener, int signals)
{
    struct pollfd waits[] = {{.fd = signals, .events = POLLIN}, {.fd = listener, .events = POLLIN}};
    struct signalfd_siginfo signal;
    for (int client_count = 0;;) {
        waits[1].fd = client_count < CLIENTS_MOST ? listener : -1;
        if (poll(waits, 2, -1) <= 0) {
            continue;
        }
        if (waits[0].revents != 0 && read(signals, &signal, sizeof signal) == sizeof signal &&
            signal.ssi_signo != SIGCHLD) {
            return;
        }
        while (client_count > 0 && waitpid(-1, NULL, WNOHANG) > 0) {
            client_count--;
        }
        if (waits[1].revents != 0) {
            client_count += serve_apart(view, listener);
        }
    }
}

static int serve(struct view *view, const char *file)
{
    if (!read_page(view)) {
        return FLW_EXIT_FAILED;
    }
    if (!make_token(view->token)) {
        flw_complain("the system has no random numbers: %s", strerror(errno));
        return FLW_EXIT_FAILED;
    }
    sigset_t awaited = awaited_signals();
    int signals = signalfd(-1, &awaited, SFD_CLOEXEC), listener = -1;
    if (signals < 0) {
        flw_complain("cannot wait for signals: %s", strerror(errno));
    } else if ((listener = listen_here(&view->port)) >= 0) {
        say_where(view, file);
        serve_all(view, listener, signals);
        close(listener);
    }
    if (signals >= 0) {
        close(signals);
    }
    return listener >= 0 ? FLW_EXIT_OK : FLW_EXIT_FAILED;
}

/* ---- the command ---- */

/* Those of this command come to the front, wherever they stand: behind FILE are the options of report. Returns how
 * many words are to be read: a --port that lacks its value is the last. */
static int gather_options(int argc, char **argv)
{
    int next = 1;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        bool is_port = strcmp(argv[i], "--port") == 0, lacks_value = is_port && i + 1 == argc;
        bool is_own =
            is_port || strcmp(argv[i], "--serve") == 0 || strncmp(argv[i], "--port=", 7) == 0;
        for (int count = is_own + (is_port && !lacks_value); count > 0; count--, next++) {
            char *word = argv[i];
            memmove(argv + next + 1, argv + next, (size_t)(i - next) * sizeof *argv);
            argv[next] = word;
            i += count > 1;
        }
        argc = lacks_value ? next : argc;
    }
    return argc;
}

static int show(struct view *view, const char *file)
{
    if (!view->serves && has_display() && open_browser(view)) {
        printf("the page of %s: %s\n", file, view->page);
        return FLW_EXIT_OK;
    }
    int code = view->ending_signal == 0 ? serve(view, file) : FLW_EXIT_FAILED;
    remove_page(view);
    flw_host_free(view->bytes);
    return code;
}

static int make_and_show(struct view *view, int argc, char **argv)
{
    struct stat about;
    if (argc == 0) {
        flw_complain("view needs a trace or a page; see fallow view --help");
        return FLW_EXIT_USAGE;
    }
    const char *file = argv[0];
    if (stat(file, &about) == 0 && S_ISDIR(about.st_mode)) {
        flw_complain("view shows one trace, and '%.300s' is a folder: fallow report %.300s --html "
                     "FILE makes its pages",
                     file, file);
        return FLW_EXIT_USAGE;
    }
    if (is_page(file) && argc > 1) {
        flw_complain("'%.300s' is a page already, and '%.100s' is for making one", file, argv[1]);
        return FLW_EXIT_USAGE;
    }
    int code = FLW_EXIT_OK;
    if (is_page(file)) {
        snprintf(view->page, sizeof view->page, "%s", file);
    } else {
        code = make_page(view, file, argc - 1, argv + 1);
    }
    if (code != FLW_EXIT_OK) {
        remove_page(view);
        return code;
    }
    return show(view, file);
}

int flw_command_view(int argc, char **argv)
{
    static const struct flw_options command = {
        .command = "view", .help = help, .list = option_list, .ends_at_operand = true};
    struct view view = {.port = 0};
    sigset_t awaited = awaited_signals();
    argc = gather_options(argc, argv);
    int code = flw_options_read(&command, &view, argc, argv);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    (void)signal(SIGCHLD, SIG_DFL); /* ignored, it would take the ends of children away */
    sigprocmask(SIG_BLOCK, &awaited, &view.mask);
    code = make_and_show(&view, argc - optind, argv + optind);
    if (view.ending_signal != 0) {
        raise(view.ending_signal); /* it ends this program as if it had not been blocked */
    }
    sigprocmask(SIG_SETMASK, &view.mask, NULL);
    return code;
}
