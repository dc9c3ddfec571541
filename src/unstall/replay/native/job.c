/* Replays the programs of a job, which wait for each other. */

#include "engine.h"

/* Programs that wait for each other at joint operations. A member is one program's part of a joint operation. */
typedef struct {
    Py_ssize_t programs, operations, members;
    Program *program;
    State *state;
    Columns *held;
    Py_ssize_t *joint;               /* by op of all programs */
    const int64_t *first;            /* by operation: its first member; and the number of all members */
    const int64_t *of, *op;          /* by member: its program, and its op there */
    const int8_t *waits;             /* by member: whether it waits for the others */
    const int64_t *transfer;         /* by member: from when the last one, or it if it does not wait, came to its end */
    const int64_t *offset;           /* by program: when its threads begin */
    int64_t *latest;                 /* by operation: when the last member so far arrived */
    Py_ssize_t *arrived, *operation; /* by operation: how many arrived; by member: its operation */
    Py_ssize_t *ready;               /* a ring of the programs that can go on */
    Py_ssize_t next, can_run;        /* where the next of them is in the ring, and how many they are */
    Py_ssize_t *stopped;             /* members at which programs stopped since the ring was empty */
    int8_t *left_out;                /* by operation: whether its members wait for nobody */
} Job;

static Py_ssize_t *
joint_of(const Job *job, Py_ssize_t member)
{
    return &job->joint[job->program[job->of[member]].joint - job->joint + job->op[member]];
}

static int
has_all(const Job *job, Py_ssize_t operation)
{
    return job->arrived[operation] == job->first[operation + 1] - job->first[operation];
}

static void
add_ready(Job *job, Py_ssize_t program)
{
    job->ready[(job->next + job->can_run++) % job->programs] = program;
}

/* Leaves out an operation at which programs wait in a circle: its ops become usual ones. */
static void
leave_out(Job *job, Py_ssize_t operation)
{
    for (Py_ssize_t member = job->first[operation]; member < job->first[operation + 1]; member++) {
        Py_ssize_t *joint = joint_of(job, member);
        *joint = *joint == member ? -1 : *joint; /* another operation may have the op, too */
    }
    job->left_out[operation] = 1;
}

/* Ends the op of a member at which its program stopped: the program can go on. */
static void
go_on(Job *job, Py_ssize_t member, int64_t begun)
{
    const Py_ssize_t which = job->of[member];
    end_joint(&job->program[which], &job->state[which], plus(begun, job->transfer[member]));
    add_ready(job, which);
}

static void
run_job(Job *job)
{
    Py_ssize_t stopped = 0;
    for (Py_ssize_t i = 0; i < job->programs; i++) {
        add_ready(job, i);
    }
    while (job->can_run) {
        const Py_ssize_t which = job->ready[job->next];
        job->next = (job->next + 1) % job->programs;
        job->can_run--;
        State *s = &job->state[which];
        const Py_ssize_t member = run(&job->program[which], s);
        const Py_ssize_t operation = member < 0 ? -1 : job->operation[member];
        if (member >= 0) {
            const int64_t time = s->op_start[s->op];
            job->arrived[operation]++;
            job->latest[operation] = later(job->latest[operation], time);
            if (job->waits[member]) {
                job->stopped[stopped++] = member;
            }
            else {
                go_on(job, member, time);
            }
        }
        if (member >= 0 && has_all(job, operation)) {
            for (Py_ssize_t each = job->first[operation]; each < job->first[operation + 1]; each++) {
                if (job->waits[each]) {
                    go_on(job, each, job->latest[operation]);
                }
            }
        }
        if (job->can_run) {
            continue;
        }
        for (Py_ssize_t i = 0; i < stopped; i++) {
            const Py_ssize_t at = job->operation[job->stopped[i]];
            if (!has_all(job, at)) {
                if (!job->left_out[at]) {
                    leave_out(job, at);
                }
                add_ready(job, job->of[job->stopped[i]]);
            }
        }
        stopped = 0;
    }
}

static int
check_job(const Job *job, uint64_t total, Fault *fault)
{
    for (Py_ssize_t i = 0; i < job->programs; i++) {
        if (job->offset[i] < 0) {
            return refuse(fault, "program %lld: it begins at %lld ns", i, job->offset[i], 0);
        }
    }
    for (Py_ssize_t i = 0; i <= job->operations; i++) {
        const int64_t least = i ? job->first[i - 1] : 0;
        if (job->first[i] < least || job->first[i] > job->members || (!i && job->first[i])) {
            return refuse(fault, "operation %lld: its members begin at %lld", i, job->first[i], 0);
        }
    }
    if (job->first[job->operations] != job->members) {
        return refuse(fault, "the operations' members end at %lld, and there are %lld", job->first[job->operations],
                      job->members, 0);
    }
    for (Py_ssize_t i = 0; i < job->members; i++) {
        if (job->of[i] < 0 || job->of[i] >= job->programs) {
            return refuse(fault, "member %lld: program %lld is none of %lld", i, job->of[i], job->programs);
        }
        if (job->op[i] < 0 || job->op[i] >= job->program[job->of[i]].ops) {
            return refuse(fault, "member %lld: op %lld is none of its program's %lld", i, job->op[i],
                          job->program[job->of[i]].ops);
        }
        if (job->transfer[i] < 0) {
            return refuse(fault, "member %lld: its transfer is negative, %lld ns", i, job->transfer[i], 0);
        }
    }
    if (!adds_up(job->transfer, job->members, &total) || !adds_up(job->offset, job->programs, &total)) {
        return refuse(fault, "the programs' times add up to more than 2**62 ns", 0, 0, 0);
    }
    return 0;
}

enum { FIRST, OF, MEMBER_OP, WAITS, TRANSFER, OFFSET, JOB_COLUMNS };
static const char *const job_columns[JOB_COLUMNS] = {"first", "program", "op", "waits", "transfer", "offsets"};

/* Takes the joint operations of a job, whose programs were taken. `views` are as many as there are columns. */
static int
take_job(PyObject *const *arguments, Job *job, Py_buffer *views, int *taken)
{
    for (; *taken < JOB_COLUMNS; ++*taken) {
        const int bytes = *taken == WAITS ? sizeof(int8_t) : sizeof(int64_t);
        if (take_column(arguments[*taken], job_columns[*taken], bytes, &views[*taken]) < 0) {
            return -1;
        }
    }
    job->operations = views[FIRST].shape[0] - 1;
    job->members = views[OF].shape[0];
    if (job->operations < 0 || views[MEMBER_OP].shape[0] != job->members || views[WAITS].shape[0] != job->members ||
        views[TRANSFER].shape[0] != job->members || views[OFFSET].shape[0] != job->programs) {
        PyErr_SetString(PyExc_ValueError, "the columns of joint operations differ in length");
        return -1;
    }
    job->first = views[FIRST].buf;
    job->of = views[OF].buf;
    job->op = views[MEMBER_OP].buf;
    job->waits = views[WAITS].buf;
    job->transfer = views[TRANSFER].buf;
    job->offset = views[OFFSET].buf;
    return 0;
}

/* Makes all programs ready to run: puts their times into `parts`, and the members of joint operations to their ops. */
static int
begin_job(Job *job, PyObject *parts)
{
    uint64_t total = 0;
    Fault fault = {0};
    Py_ssize_t ops = 0;
    for (Py_ssize_t i = 0; i < job->programs; i++) {
        PyObject *part = new_times(&job->program[i], &job->state[i]);
        if (!part || PyList_SetItem(parts, i, part) < 0) {
            return -1;
        }
        ops += job->program[i].ops;
    }
    for (Py_ssize_t i = 0; i < job->programs; i++) {
        job->state[i].total = total;
        if (begin_part(&job->program[i], &job->state[i], &total) < 0) {
            return -1;
        }
    }
    if (check_job(job, total, &fault) < 0) {
        raise_fault(&fault);
        return -1;
    }
    if (grow(&job->joint, 0, ops, sizeof(Py_ssize_t)) < 0 ||
        grow(&job->latest, 0, job->operations, sizeof(int64_t)) < 0 ||
        grow(&job->arrived, 0, job->operations, sizeof(Py_ssize_t)) < 0 ||
        grow(&job->operation, 0, job->members, sizeof(Py_ssize_t)) < 0 ||
        grow(&job->ready, 0, job->programs, sizeof(Py_ssize_t)) < 0 ||
        grow(&job->stopped, 0, job->members, sizeof(Py_ssize_t)) < 0 ||
        grow(&job->left_out, 0, job->operations, sizeof(int8_t)) < 0) {
        return -1;
    }
    memset(job->joint, -1, (size_t)ops * sizeof(Py_ssize_t));
    Py_ssize_t *joint = job->joint;
    for (Py_ssize_t i = 0; i < job->programs; i++) {
        job->program[i].joint = joint;
        joint += job->program[i].ops;
        for (long long thread = 0; thread < job->program[i].threads; thread++) {
            job->state[i].clock[thread] = job->offset[i];
        }
    }
    for (Py_ssize_t i = 0; i < job->operations; i++) {
        for (Py_ssize_t member = job->first[i]; member < job->first[i + 1]; member++) {
            *joint_of(job, member) = member;
            job->operation[member] = i;
        }
    }
    return 0;
}

/* Returns the operations that were left out. */
static PyObject *
left_out(const Job *job)
{
    PyObject *found = PyList_New(0);
    for (Py_ssize_t i = 0; found && i < job->operations; i++) {
        if (job->left_out[i]) {
            PyObject *number = PyLong_FromSsize_t(i);
            if (!number || PyList_Append(found, number) < 0) {
                Py_CLEAR(found);
            }
            Py_XDECREF(number);
        }
    }
    return found;
}

PyObject *
replay_job(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    PyObject *result = NULL, *parts = NULL, *found = NULL;
    Py_buffer views[JOB_COLUMNS];
    int taken = 0;
    Job job = {0};
    if (count != 1 + JOB_COLUMNS || !PyTuple_Check(arguments[0])) {
        return PyErr_Format(PyExc_TypeError, "replay_job takes a tuple of programs and %d columns", (int)JOB_COLUMNS);
    }
    job.programs = PyTuple_Size(arguments[0]);
    if (!(parts = PyList_New(job.programs)) || grow(&job.program, 0, job.programs, sizeof(Program)) < 0 ||
        grow(&job.state, 0, job.programs, sizeof(State)) < 0 || grow(&job.held, 0, job.programs, sizeof(Columns)) < 0) {
        goto done;
    }
    for (Py_ssize_t i = 0; i < job.programs; i++) {
        PyObject *columns_of = PyTuple_GetItem(arguments[0], i), *each[ARGUMENTS];
        if (!PyTuple_Check(columns_of) || PyTuple_Size(columns_of) != ARGUMENTS) {
            PyErr_Format(PyExc_TypeError, "a program is a tuple of %d", (int)ARGUMENTS);
            goto done;
        }
        for (int argument = 0; argument < ARGUMENTS; argument++) {
            each[argument] = PyTuple_GetItem(columns_of, argument);
        }
        job.state[i].is_whole = 1;
        if (take_program(each, &job.program[i], &job.held[i], &job.state[i].capacity, 0) < 0) {
            goto done;
        }
    }
    if (take_job(arguments + 1, &job, views, &taken) < 0 || begin_job(&job, parts) < 0) {
        goto done;
    }
    run_job(&job);
    if ((found = left_out(&job))) {
        result = PyTuple_Pack(2, parts, found);
    }
done:
    Py_XDECREF(parts);
    Py_XDECREF(found);
    for (Py_ssize_t i = 0; i < job.programs; i++) {
        if (job.state) {
            release(&job.state[i]);
        }
        if (job.held) {
            give_back(&job.held[i]);
        }
    }
    while (taken) {
        PyBuffer_Release(&views[--taken]);
    }
    PyMem_Free(job.program);
    PyMem_Free(job.state);
    PyMem_Free(job.held);
    PyMem_Free(job.joint);
    PyMem_Free(job.latest);
    PyMem_Free(job.arrived);
    PyMem_Free(job.operation);
    PyMem_Free(job.ready);
    PyMem_Free(job.stopped);
    PyMem_Free(job.left_out);
    return result;
}
