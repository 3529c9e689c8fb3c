#include "tools/live/collector.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "report/text/units.hpp"
#include "tools/live/find_processes.hpp"

namespace memlab::tools {
namespace {

/// What takes long and changes slowly is asked less often.
constexpr std::chrono::seconds between_searches{3};
constexpr std::chrono::seconds between_looks_at_descriptors{30};
constexpr std::chrono::seconds facts_stay_for{10};
constexpr std::chrono::seconds rest_of_silent{10};

std::uint64_t since_epoch_ns(auto moment) {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(moment.time_since_epoch()).count());
}

std::string host_name() {
    std::array<char, 256> name{};
    return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : std::string();
}

}  // namespace

Collector::Collector(std::chrono::milliseconds patience) : patience_(patience) {}

const ProcessFacts& Collector::facts_of(pid_t pid) {
    const Clock::time_point now = Clock::now();
    auto& [read, facts] = facts_[pid];
    if (facts.pid == 0 || now - read > facts_stay_for) {
        facts = table_.of(pid);
        read = now;
    }
    return facts;
}

void Collector::find_peers() {
    const Clock::time_point now = Clock::now();
    if (peers_found_ && now - *peers_found_ < between_searches) {
        return;
    }
    peers_found_ = now;
    std::map<pid_t, Peer> peers;
    for (const pid_t pid : find_live_processes()) {
        const std::uint64_t start = table_.start_ticks(pid);
        const auto known = peers_.find(pid);
        if (known != peers_.end() && known->second.start_ticks == start) {
            peers.emplace(pid, std::move(known->second));
        } else {
            peers[pid].start_ticks = start;
        }
    }
    peers_ = std::move(peers);
}

void Collector::rest(Peer& peer, std::string problem) {
    peer.connection.reset();
    peer.problem = std::move(problem);
    peer.not_before = Clock::now() + rest_of_silent;
}

LiveConnection* Collector::connection_to(pid_t pid, Peer& peer) {
    if (peer.connection == nullptr || !peer.connection->connected()) {
        if (Clock::now() < peer.not_before) {
            return nullptr;
        }
        peer.connection = std::make_unique<LiveConnection>(pid, patience_);
        if (!peer.connection->connected()) {
            rest(peer, peer.connection->problem());
            return nullptr;
        }
    }
    peer.problem.clear();
    return peer.connection.get();
}

std::vector<std::pair<pid_t, LiveReply>> Collector::ask_all(
    const std::vector<pid_t>& pids, Verb verb, const std::vector<std::string>& arguments) {
    std::vector<std::pair<pid_t, LiveReply>> replies;
    std::vector<std::pair<pid_t, Peer*>> asked;
    for (const pid_t pid : pids) {
        const auto peer = peers_.find(pid);
        LiveConnection* const connection =
            peer == peers_.end() ? nullptr : connection_to(pid, peer->second);
        if (connection == nullptr) {
            continue;
        }
        // One that was idle for too long has closed the connection.
        if (!connection->begin(verb, arguments)) {
            peer->second.connection.reset();
            LiveConnection* const again = connection_to(pid, peer->second);
            if (again == nullptr || !again->begin(verb, arguments)) {
                continue;
            }
        }
        asked.emplace_back(pid, &peer->second);
    }
    const Clock::time_point until = Clock::now() + patience_;
    for (const auto& [pid, peer] : asked) {
        LiveReply reply = peer->connection->finish(until);
        if (!peer->connection->connected()) {
            rest(*peer, reply.problem);
        }
        replies.emplace_back(pid, std::move(reply));
    }
    return replies;
}

MachineSample Collector::sample() {
    find_peers();
    Observed observed;
    observed.gpus = nvml_.read();
    observed.own_child = nvml_.child();
    observed.pids_of_the_host = table_.has_pids_of_the_host();
    const Clock::time_point now = Clock::now();
    if (!open_found_ || now - *open_found_ >= between_looks_at_descriptors) {
        open_ = table_.with_open_devices();
        open_found_ = now;
    }
    observed.open = open_;

    std::vector<pid_t> pids;
    for (const auto& [pid, peer] : peers_) {
        pids.push_back(pid);
    }
    std::map<pid_t, LiveStatus> statuses;
    for (auto& [pid, reply] : ask_all(pids, Verb::status)) {
        LiveStatus& status = statuses[pid];
        status.problem = reply.problem;
        status.document = std::move(reply.document);
        if (status.problem.empty()) {
            status.status = read_status(status.document, &status.problem);
        }
    }
    std::map<pid_t, std::pair<Clock::time_point, ProcessFacts>> facts;
    const auto keep_facts = [&](pid_t pid) {
        observed.facts.emplace(pid, facts_of(pid));
        facts[pid] = facts_[pid];
    };
    for (const auto& [pid, peer] : peers_) {
        LiveStatus& status = statuses[pid];
        status.process = pid;
        if (!status.status && status.problem.empty()) {
            status.problem = peer.problem;
        }
        keep_facts(pid);
        // One that has ended meanwhile is no process that does not answer.
        if (status.status || observed.facts.at(pid).visible) {
            observed.statuses.push_back(std::move(status));
        }
    }
    for (const Gpu& gpu : observed.gpus.gpus) {
        for (const GpuProcess& process : gpu.processes) {
            keep_facts(process.pid);
        }
    }
    for (const OpenDevices& open : observed.open) {
        keep_facts(open.pid);
    }
    facts_ = std::move(facts);

    MachineSample sample = join(std::move(observed));
    sample.time_ns = since_epoch_ns(Clock::now());
    sample.wall_ns = report::wall_time_now_ns();
    sample.host = host_name();
    return sample;
}

}  // namespace memlab::tools
