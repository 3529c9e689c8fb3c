// Takes samples of the machine: asks NVML, /proc and every process with a control channel. Requests
// go out to all processes first and answers are read then, so that a stopped process costs a sample
// its patience once, however many there are; it is left alone for some seconds after that.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/interval_document.hpp"
#include "tools/live/client.hpp"
#include "tools/live/machine_sample.hpp"

namespace memlab::tools {

/// Thread-safety: none.
class Collector {
  public:
    /// How long a sample waits for processes, all together.
    explicit Collector(std::chrono::milliseconds patience = std::chrono::milliseconds(400));

    MachineSample sample();

    /// Asks them all at once: {pid, reply}, in any order, of those that answer.
    std::vector<std::pair<pid_t, LiveReply>> ask_all(
        const std::vector<pid_t>& pids, Verb verb, const std::vector<std::string>& arguments = {});

  private:
    using Clock = std::chrono::steady_clock;

    /// A process with a channel. The start tells it from a later one of the same id.
    struct Peer {
        std::uint64_t start_ticks = 0;
        std::unique_ptr<LiveConnection> connection;
        std::string problem;
        Clock::time_point not_before;
    };

    void find_peers();
    LiveConnection* connection_to(pid_t pid, Peer& peer);
    void rest(Peer& peer, std::string problem);
    const ProcessFacts& facts_of(pid_t pid);

    std::chrono::milliseconds patience_;
    NvmlReader nvml_;
    ProcessTable table_;
    std::map<pid_t, Peer> peers_;
    std::map<pid_t, std::pair<Clock::time_point, ProcessFacts>> facts_;
    std::vector<OpenDevices> open_;
    std::optional<Clock::time_point> peers_found_;
    std::optional<Clock::time_point> open_found_;
};

}  // namespace memlab::tools
