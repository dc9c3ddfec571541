/* The thread of _agent.h. It wakes ten times a second to look at a number in a file that is mapped into memory: who asks
   increases it.

   Stacks are written with the GIL held, so that no frame changes meanwhile. Another thread, the writer, waits for it:
   whoever has it may never release it. */

#define _GNU_SOURCE
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "_agent.h"

#include "_marks.h"

#include "../lines/_clock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    ASKED_STREAMS = 1024,
    WAKES_EACH_NS = 100000000,
    WAKES_UNTIL_IDLE = 10,
    ENDS_WITHIN_NS = 1000000000,
    GIL_WITHIN_NS = 1000000000, /* a thread that runs Python releases the GIL each 5 ms if another one waits */
};

typedef struct {
    char magic[8];
    _Atomic uint32_t asked, answered; /* counts of questions */
    uint64_t time;                    /* of the answer */
    uint32_t streams, stacks;         /* rows in use, and whether stacks were written */
    struct {
        int32_t result; /* a CUresult, or NOT_ASKED */
        uint32_t last;  /* the number of the stream's last work before it was asked */
    } rows[ASKED_STREAMS]; /* by the stream's row in the ring */
} Answers;

_Static_assert(sizeof(Answers) == 32 + 8 * ASKED_STREAMS, "answers.py says what the file looks like");

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    int runs, ends;
    Answers *answers;
    int stacks, signal;
    dev_t device; /* of the file of stacks: the program may have closed it and use its number */
    ino_t inode;
    void (*handler)(int);
    int (*query)(uint64_t, uint64_t);
    void (*idle)(void);
} agent = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t written;
    int waits;  /* the thread is there, and has not had the GIL */
    int wanted; /* stacks are */
    int wrote;
} writer = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int
write_stacks(void)
{
    struct sigaction installed;
    struct stat file;
    if (sigaction(agent.signal, NULL, &installed) || installed.sa_handler != agent.handler ||
        fstat(agent.stacks, &file) || file.st_dev != agent.device || file.st_ino != agent.inode ||
        ftruncate(agent.stacks, 0)) {
        return 0;
    }
    return !raise(agent.signal); /* in this thread; it returns when the handler has */
}

/* Python may end this thread in PyGILState_Ensure as the interpreter is finalised: it holds no lock there. */
static void *
write_with_gil(void *nothing)
{
    PyGILState_STATE state = PyGILState_Ensure();
    pthread_mutex_lock(&writer.lock);
    writer.wrote = writer.wanted && write_stacks();
    writer.wanted = writer.waits = 0;
    pthread_cond_signal(&writer.written);
    pthread_mutex_unlock(&writer.lock);
    PyGILState_Release(state);
    return nothing;
}

/* Returns whether there is a thread that waits for the GIL. */
static int
start_writer(void)
{
    pthread_t thread;
    if (!writer.waits && Py_IsInitialized() && !pthread_create(&thread, NULL, write_with_gil, NULL)) {
        pthread_setname_np(thread, "unstall");
        pthread_detach(thread);
        writer.waits = 1;
    }
    return writer.waits;
}

/* If the GIL does not come, its holder is in C, so its frames do not change either. If it returns from there while they are
   read, the writer gets the GIL next, and keeps it until they have been read. */
static int
stacks_written(void)
{
    uint64_t until = now() + GIL_WITHIN_NS;
    struct timespec at = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
    pthread_mutex_lock(&writer.lock);
    writer.wanted = 1;
    if (start_writer()) {
        while (writer.wanted && !pthread_cond_timedwait(&writer.written, &writer.lock, &at)) {
        }
    }
    int wrote = writer.wanted ? write_stacks() : writer.wrote;
    writer.wanted = 0;
    pthread_mutex_unlock(&writer.lock);
    return wrote;
}

static void
answer(Answers *answers)
{
    static KnownStream known[ASKED_STREAMS];
    uint32_t count = marks_streams(known, ASKED_STREAMS);
    for (uint32_t i = 0; i < count; i++) {
        int may_ask = !known[i].gone && !known[i].thread; /* a thread's default stream is only known in that thread */
        answers->rows[i].result = may_ask ? agent.query(known[i].context, known[i].handle) : NOT_ASKED;
        answers->rows[i].last = known[i].last;
    }
    answers->streams = count;
    pthread_mutex_unlock(&agent.lock); /* a thread that has the GIL may want it */
    answers->stacks = (uint32_t)stacks_written();
    pthread_mutex_lock(&agent.lock);
    answers->time = now();
}

static void *
attend(void *nothing)
{
    pthread_mutex_lock(&agent.lock);
    for (int wakes = 0; !agent.ends; wakes++) {
        uint32_t asked = agent.answers->asked;
        if (asked != agent.answers->answered) {
            answer(agent.answers);
            agent.answers->answered = asked;
        }
        else if (wakes % WAKES_UNTIL_IDLE == 0) {
            agent.idle();
        }
        uint64_t until = now() + WAKES_EACH_NS;
        struct timespec at = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
        pthread_cond_timedwait(&agent.wake, &agent.lock, &at);
    }
    pthread_mutex_unlock(&agent.lock);
    return nothing;
}

static int
map_answers(const char *path)
{
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) {
        return errno;
    }
    int error = posix_fallocate(file, 0, sizeof(Answers));
    void *map = error ? MAP_FAILED : mmap(NULL, sizeof(Answers), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    error = error ? error : map == MAP_FAILED ? errno : 0;
    close(file);
    if (!error) {
        agent.answers = map;
        memcpy(agent.answers->magic, "UNSTAGN1", 8);
    }
    return error;
}

int
agent_start(const char *path, int stacks, int signal, int (*query)(uint64_t, uint64_t), void (*idle)(void))
{
    struct sigaction installed;
    struct stat file;
    if (agent.runs) {
        return EBUSY;
    }
    if (sigaction(signal, NULL, &installed) || fstat(stacks, &file)) {
        return errno;
    }
    agent.handler = installed.sa_handler;
    agent.device = file.st_dev;
    agent.inode = file.st_ino;
    agent.stacks = stacks;
    agent.signal = signal;
    agent.query = query;
    agent.idle = idle;
    agent.ends = 0;
    int error = map_answers(path);
    if (error) {
        return error;
    }
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&agent.wake, &attributes);
    if (!writer.waits) {
        pthread_cond_init(&writer.written, &attributes);
    }
    pthread_condattr_destroy(&attributes);
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, signal);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the thread gets none of the program's signals */
    error = pthread_create(&agent.thread, NULL, attend, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    agent.runs = !error;
    if (agent.runs) {
        pthread_setname_np(agent.thread, "unstall");
    }
    return error;
}

static struct timespec
in_ns(uint64_t wait)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    uint64_t until = (uint64_t)at.tv_nsec + wait;
    return (struct timespec){at.tv_sec + (time_t)(until / 1000000000), (long)(until % 1000000000)};
}

void
agent_end(void)
{
    if (!agent.runs || agent.ends) {
        return;
    }
    __atomic_store_n(&agent.ends, 1, __ATOMIC_RELEASE);
    struct timespec until = in_ns(ENDS_WITHIN_NS);
    if (!pthread_mutex_timedlock(&agent.lock, &until)) { /* the driver may keep an answer from its end */
        pthread_cond_signal(&agent.wake);
        pthread_mutex_unlock(&agent.lock);
    }
    if (pthread_timedjoin_np(agent.thread, NULL, &until)) {
        pthread_detach(agent.thread); /* it still runs, and may write the answer: no other is started */
    }
    else {
        munmap(agent.answers, sizeof(Answers));
        agent.runs = 0;
    }
}

void
agent_hold(void)
{
    pthread_mutex_lock(&agent.lock);
}

void
agent_release(void)
{
    pthread_mutex_unlock(&agent.lock);
}

void
agent_forked(void)
{
    pthread_mutex_init(&agent.lock, NULL);
    pthread_mutex_init(&writer.lock, NULL);
    agent.runs = writer.waits = 0;
}
