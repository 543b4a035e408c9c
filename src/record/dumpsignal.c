/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the process's handlers of signals that ask for a dump: they count, and do nothing else.
 */
#include <signal.h>

#include "record/recorder.h"

#define SIGNALS 65

static struct {
    pthread_mutex_t mutex; /* users, before */
    uint32_t users[SIGNALS];
    struct sigaction before[SIGNALS];
    _Atomic uint32_t count[SIGNALS];
} table = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void count_signal(int number)
{
    atomic_fetch_add_explicit(&table.count[number], 1, memory_order_relaxed);
}

static bool is_ours(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) == 0 && action->sa_handler == count_signal;
}

static bool is_default(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) == 0 &&
           (action->sa_handler == SIG_DFL || action->sa_handler == SIG_IGN);
}

static fallow_status install(int number)
{
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
    struct sigaction before;
    sigemptyset(&action.sa_mask);
    if (sigaction(number, NULL, &before) != 0) {
        return FALLOW_INVALID_ARGUMENT;
    }
    if (!is_default(&before)) {
        return FALLOW_BUSY;
    }
    if (sigaction(number, &action, NULL) != 0) {
        return FALLOW_INVALID_ARGUMENT; /* SIGKILL, SIGSTOP */
    }
    table.before[number] = before;
    return FALLOW_OK;
}

fallow_status flw_dumpsignal_acquire(int number)
{
    fallow_status status = FALLOW_OK;
    if (number <= 0 || number >= SIGNALS) {
        return FALLOW_INVALID_ARGUMENT;
    }
    pthread_mutex_lock(&table.mutex);
    if (table.users[number] == 0) {
        status = install(number);
    }
    table.users[number] += status == FALLOW_OK;
    pthread_mutex_unlock(&table.mutex);
    return status;
}

void flw_dumpsignal_release(int number)
{
    struct sigaction now;
    pthread_mutex_lock(&table.mutex);
    table.users[number]--;
    if (table.users[number] == 0 && sigaction(number, NULL, &now) == 0 && is_ours(&now)) {
        (void)sigaction(number, &table.before[number], NULL);
    }
    pthread_mutex_unlock(&table.mutex);
}

void flw_dumpsignal_forget(int number)
{
    struct sigaction now;
    pthread_mutex_init(&table.mutex, NULL); /* whoever held it is gone */
    if (number > 0 && table.users[number] > 0 && sigaction(number, NULL, &now) == 0 &&
        is_ours(&now)) {
        (void)sigaction(number, &table.before[number], NULL);
    }
    table.users[number] = 0;
}

uint32_t flw_dumpsignal_count(int number)
{
    return atomic_load_explicit(&table.count[number], memory_order_relaxed);
}
