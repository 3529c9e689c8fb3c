#include "tools/top/watcher.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "report/text/signal_cleanup.hpp"

namespace memlab::tools {
namespace {

std::string mark_of(const ProcessSample& process) {
    return process.status ? process.status->latest_mark.value_or("") : std::string();
}

}  // namespace

Watched Sampler::take(const Interest& interest) {
    Watched watched;
    watched.number = ++number_;
    watched.sample = collector_.sample();
    add_details(interest, watched);
    return watched;
}

void Sampler::add_details(const Interest& interest, Watched& watched) {
    std::vector<pid_t> pids;
    for (const ProcessSample& process : watched.sample.processes) {
        if (!interest.all && process.pid() != interest.pid) {
            continue;
        }
        if (process.status) {
            pids.push_back(process.pid());
            watched.details[process.pid()].mark = mark_of(process);
        } else if (process.memlab) {
            watched.details[process.pid()].problem = process.problem;
        }
    }
    for (const auto& [pid, reply] :
         collector_.ask_all(pids, Verb::sites, {std::to_string(interest.sites)})) {
        Details& details = watched.details[pid];
        details.problem = reply.problem;
        const auto document =
            reply.ok() ? read_interval(reply.document, &details.problem) : std::nullopt;
        if (document) {
            details.now = names_.name(*document, pid);
        }
    }
    for (const auto& [pid, reply] :
         collector_.ask_all(pids, Verb::nn_modules, {std::to_string(interest.nn_modules)})) {
        Details& details = watched.details[pid];
        std::string problem;
        auto document = reply.ok() ? read_interval(reply.document, &problem) : std::nullopt;
        if (!document) {
            continue;
        }
        details.nn_modules = std::move(document->nn_modules);
        const ProcessSample& process = *watched.sample.find(pid);
        Base& base = bases_[pid];
        if (base.start_ticks != process.facts.start_ticks) {
            base = {process.facts.start_ticks, details.mark, std::nullopt};
        } else if (base.mark != details.mark) {
            base.mark = details.mark;
            base.nn_modules = details.nn_modules;
        }
        if (base.nn_modules) {
            details.nn_modules_since_mark = grown_since(*base.nn_modules, details.nn_modules);
        }
    }
    if (interest.since_mark) {
        add_since_mark(pids, interest, watched);
    }
    if (interest.pool) {
        for (const auto& [pid, reply] : collector_.ask_all(pids, Verb::pool)) {
            std::string problem;
            watched.details[pid].pool =
                reply.ok() ? read_pool(reply.document, &problem) : std::nullopt;
        }
    }
}

void Sampler::add_since_mark(const std::vector<pid_t>& pids, const Interest& interest,
                             Watched& watched) {
    std::vector<pid_t> marked;
    std::copy_if(pids.begin(), pids.end(), std::back_inserter(marked),
                 [&](pid_t pid) { return !watched.details[pid].mark.empty(); });
    for (const auto& [pid, reply] :
         collector_.ask_all(marked, Verb::sites, {std::to_string(interest.sites), "since-mark"})) {
        std::string problem;
        const auto document = reply.ok() ? read_interval(reply.document, &problem) : std::nullopt;
        if (document) {
            watched.details[pid].since_mark = names_.name(*document, pid);
        }
    }
}

Watcher::Watcher(std::chrono::milliseconds interval)
    : interval_(interval), event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    errands_.emplace([this](std::string outcome) {
        const std::lock_guard lock(mutex_);
        message_ = std::move(outcome);
        sample_now_ = true;
        tell();
        wake_.notify_one();
    });
    const report::SignalBlocker blocker(report::SignalBlocker::Which::all);
    thread_ = std::thread([this] { run(); });
}

Watcher::~Watcher() {
    errands_.reset();
    {
        const std::lock_guard lock(mutex_);
        ends_ = true;
    }
    wake_.notify_one();
    thread_.join();
    close(event_);
}

std::shared_ptr<const Watched> Watcher::latest() const {
    const std::lock_guard lock(mutex_);
    return latest_;
}

void Watcher::set_interest(const Interest& interest) {
    const std::lock_guard lock(mutex_);
    sample_now_ |= interest.pid != interest_.pid || interest.all != interest_.all ||
                   interest.since_mark != interest_.since_mark || interest.pool != interest_.pool;
    interest_ = interest;
    if (sample_now_) {
        wake_.notify_one();
    }
}

std::optional<std::string> Watcher::take_message() {
    const std::lock_guard lock(mutex_);
    return std::exchange(message_, std::nullopt);
}

void Watcher::tell() const {
    const std::uint64_t one = 1;
    (void)!write(event_, &one, sizeof one);
}

void Watcher::run() {
    // A sample waits for processes that do not answer, but leaves time for the rest.
    Sampler sampler(std::clamp<std::chrono::milliseconds>(
        interval_ / 2, std::chrono::milliseconds(100), std::chrono::milliseconds(1000)));
    std::unique_lock lock(mutex_);
    while (!ends_) {
        const Interest interest = interest_;
        sample_now_ = false;
        lock.unlock();
        auto watched = std::make_shared<const Watched>(sampler.take(interest));
        lock.lock();
        latest_ = std::move(watched);
        tell();
        const auto next = std::chrono::steady_clock::now() + interval_;
        wake_.wait_until(lock, next, [this] { return ends_ || sample_now_; });
    }
}

void Received::take(const Watcher& watcher) {
    std::uint64_t count = 0;
    (void)!read(watcher.descriptor(), &count, sizeof count);
    const std::shared_ptr<const Watched> latest = watcher.latest();
    if (latest != nullptr && latest->number != number_) {
        number_ = latest->number;
        history_.add(latest->sample);
        details_ = latest->details;
    }
}

}  // namespace memlab::tools
