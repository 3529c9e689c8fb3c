#include "tests/simcuda/timeline.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <utility>

#include "tests/simcuda/call.hpp"
#include "tests/simcuda/pool.hpp"
#include "tests/simcuda/race.hpp"
#include "tests/simcuda/state.hpp"
#include "tests/simcuda/tool.hpp"

namespace memlab::simcuda {
namespace {

constexpr std::chrono::milliseconds deadlock_limit{60'000};
constexpr uint64_t never = UINT64_MAX;

struct RetiredIndex {
    size_t index;
    uint64_t epoch;
};

struct Timeline {
    uint64_t now = 0;
    std::list<OpPtr> pending;  // in order of submission
    Clock host;
    size_t clock_indices = 0;
    std::vector<RetiredIndex> retired;
    std::vector<uint64_t> first_epochs;
};

Timeline& timeline() {
    static Timeline& once = *new Timeline;
    return once;
}

// When an op would complete: never, while something it waits for is not done.
uint64_t completion_time(const Op& op) {
    if (op.stream->closed || op.running || (op.ready && !op.ready())) {
        return never;
    }
    uint64_t start = op.submitted;
    for (const OpPtr& before : op.waits_for) {
        if (!before->done) {
            return never;
        }
        start = std::max(start, before->completed);
    }
    return start + op.duration;
}

void run_action(Op& op) {
    if (!op.action) {
        return;
    }
    op.running = true;
    if (op.calls_host) {
        unlocked(op.action);
    } else {
        op.action();
    }
    op.action = nullptr;
    op.running = false;
}

void complete(const OpPtr& op, uint64_t when) {
    run_action(*op);
    op->completed = when;
    op->done = true;
    op->waits_for.clear();
    op->stream.reset();  // which holds its newest op
    static_cast<void>(timeline().pending.remove(op));
    notify_driver();
}

OpPtr next_to_complete(uint64_t& when) {
    OpPtr next;
    when = never;
    for (const OpPtr& op : timeline().pending) {
        if (const uint64_t time = completion_time(*op); time < when) {
            when = time;
            next = op;
        }
    }
    return next;
}

// Whether some work waits for another process.
bool waits_for_others() {
    const auto& pending = timeline().pending;
    return std::any_of(pending.begin(), pending.end(),
                       [](const OpPtr& op) { return op->ready && !op->ready(); });
}

void add_newest_ops(Context& context, std::vector<OpPtr>& ops, Clock& clock) {
    for (const auto& stream : context.streams) {
        if (stream->last) {
            join(clock, stream->last->clock);
            if (!stream->last->done) {
                ops.push_back(stream->last);
            }
        }
    }
    for (const OpPtr& orphan : context.orphans) {
        join(clock, orphan->clock);
        if (!orphan->done) {
            ops.push_back(orphan);
        }
    }
    std::erase_if(context.orphans, [&](const OpPtr& orphan) {
        if (!orphan->done) {
            return false;
        }
        join(context.orphan_clock, orphan->clock);
        return true;
    });
    join(clock, context.orphan_clock);
}

}  // namespace

void join(Clock& into, const Clock& from) {
    if (into.size() < from.size()) {
        into.resize(from.size());
    }
    for (size_t i = 0; i < from.size(); ++i) {
        into[i] = std::max(into[i], from[i]);
    }
}

uint64_t virtual_now() {
    return timeline().now;
}

void settle() {
    advance(0);
}

void advance(uint64_t nanoseconds) {
    const uint64_t end = timeline().now + nanoseconds;
    uint64_t when = 0;
    while (OpPtr op = next_to_complete(when)) {
        if (when > end) {
            break;
        }
        timeline().now = std::max(timeline().now, when);
        complete(op, when);
    }
    timeline().now = std::max(timeline().now, end);
}

static void tell_work(const Work& work, uint64_t duration, int device) {
    const simcuda_tool* tool = attached_tool();
    if (tool == nullptr) {
        return;
    }
    switch (work.type) {
        case CU_GRAPH_NODE_TYPE_KERNEL:
            tool->work(simcuda_kernel_work, work.name.c_str(), duration, device);
            break;
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            tool->work(simcuda_copy_work, "", duration, device);
            break;
        case CU_GRAPH_NODE_TYPE_MEMSET:
            tool->work(simcuda_fill_work, "", duration, device);
            break;
        default:
            break;
    }
}

OpPtr submit(Stream& stream, Work work, const std::vector<OpPtr>& after, const Clock& after_clock) {
    Context& context = *stream.context;
    auto op = std::make_shared<Op>();
    op->stream = stream.shared_from_this();
    op->duration = work.duration + (work.takes_time ? stream.work_time : 0);
    tell_work(work, op->duration, context.device);
    op->submitted = timeline().now;
    op->action = std::move(work.action);
    if (!work.prints.empty()) {
        op->action = [owner = &root(context), text = work.prints] { owner->output += text; };
    }
    op->calls_host = work.calls_host;
    op->ready = std::move(work.ready);
    op->clock = timeline().host;
    const auto wait_on = [&](const OpPtr& before) {
        if (before && !before->done) {
            op->waits_for.push_back(before);
        }
    };
    const auto follow = [&](const Stream& other) {
        if (other.last) {
            wait_on(other.last);
            join(op->clock, other.last->clock);
        }
    };
    follow(stream);
    if (stream.legacy) {
        for (const auto& other : context.streams) {
            if (other->blocking) {
                follow(*other);
            }
        }
    } else if (stream.blocking && context.legacy) {
        follow(*context.legacy);
    }
    for (const OpPtr& barrier : context.barrier) {
        wait_on(barrier);
    }
    std::erase_if(context.barrier, [](const OpPtr& barrier) { return barrier->done; });
    join(op->clock, context.barrier_clock);
    for (const OpPtr& before : after) {
        wait_on(before);
    }
    join(op->clock, after_clock);
    // An early kernel is ordered behind the one before it at its end only.
    const bool early = work.early && stream.last && !stream.last->begin.empty();
    Clock begin = op->clock;
    if (early) {
        begin = timeline().host;
        join(begin, stream.last->begin);
        join(begin, context.barrier_clock);
        join(begin, after_clock);
    }
    if (work.type == CU_GRAPH_NODE_TYPE_KERNEL) {
        op->begin = begin;
        op->begin.resize(std::max(op->begin.size(), std::size_t{1}));
    }
    if (op->clock.size() <= stream.clock_index) {
        op->clock.resize(stream.clock_index + 1);
    }
    op->clock[stream.clock_index] = ++stream.epoch;
    for (const Access& access : work.accesses) {
        record_access(access, stream, early ? begin : op->clock);
    }
    stream.last = op;
    timeline().pending.push_back(op);
    settle();
    return op;
}

bool is_done(const OpPtr& op) {
    return !op || op->done;
}

void wait_for(const OpPtr& op, bool burns) {
    while (!is_done(op)) {
        uint64_t when = 0;
        if (next_to_complete(when)) {
            advance(when > timeline().now ? when - timeline().now : 0);
        } else if (burns) {
            wait_driver(std::chrono::milliseconds(0));
        } else if (waits_for_others()) {
            wait_driver(std::chrono::milliseconds(1));
        } else if (!wait_driver(deadlock_limit) && !is_done(op)) {
            std::fprintf(stderr,
                         "simcuda: a host thread waited a minute for a stream that the test keeps "
                         "closed: open it from another thread\n");
            std::fflush(nullptr);
            std::_Exit(87);
        }
    }
    if (op) {
        host_saw(op->clock);
    }
}

void host_saw(const Clock& clock) {
    join(timeline().host, clock);
}

const Clock& host_clock() {
    return timeline().host;
}

std::vector<OpPtr> newest_ops(Context& context, Clock& clock) {
    std::vector<OpPtr> ops;
    for (Context* member : family(context)) {
        add_newest_ops(*member, ops, clock);
    }
    return ops;
}

void wait_for_context(Context& context) {
    Clock clock;
    for (const OpPtr& op : newest_ops(context, clock)) {
        wait_for(op);
    }
    host_saw(clock);
    release_idle_pool_memory();
}

void show_output(Context& context) {
    const std::string output = std::exchange(root(context).output, {});
    for (std::size_t done = 0; done < output.size();) {
        const ssize_t written = ::write(STDOUT_FILENO, output.data() + done, output.size() - done);
        if (written <= 0) {
            break;
        }
        done += static_cast<std::size_t>(written);
    }
}

size_t take_clock_index() {
    Timeline& line = timeline();
    for (size_t i = 0; i < line.retired.size(); ++i) {
        const RetiredIndex candidate = line.retired[i];
        if (candidate.index < line.host.size() && line.host[candidate.index] >= candidate.epoch) {
            line.retired.erase(line.retired.begin() + static_cast<std::ptrdiff_t>(i));
            line.first_epochs[candidate.index] = candidate.epoch;
            return candidate.index;
        }
    }
    line.first_epochs.push_back(0);
    return line.clock_indices++;
}

void return_clock_index(size_t index, uint64_t epoch) {
    timeline().retired.push_back({index, epoch});
}

uint64_t first_epoch(size_t index) {
    return timeline().first_epochs[index];
}

}  // namespace memlab::simcuda
