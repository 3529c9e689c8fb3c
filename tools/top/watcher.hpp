// Takes samples in a thread of its own, so that keys and scrapes never wait for a process that does
// not answer, and samples for nothing that a process is asked to do.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tools/live/collector.hpp"
#include "tools/top/details.hpp"
#include "tools/top/errands.hpp"
#include "tools/top/view_state.hpp"

namespace memlab::tools {

/// What a sample comes with. A value that nobody changes any more.
struct Watched {
    std::uint64_t number = 0;  ///< of the sample, from 1 on
    MachineSample sample;
    DetailsOf details;
};

/// Which processes' call sites are asked for.
struct Interest {
    bool all = false;  ///< every one, else `pid`
    pid_t pid = 0;     ///< 0: none
    bool since_mark = false;
    bool pool = false;
    std::size_t sites = 50;
    std::size_t nn_modules = 200;
};

/// Takes the samples; used by Watcher's thread, and alone where one sample is all.
class Sampler {
  public:
    explicit Sampler(std::chrono::milliseconds patience) : collector_(patience) {}

    Watched take(const Interest& interest);

  private:
    void add_details(const Interest& interest, Watched& watched);
    void add_since_mark(const std::vector<pid_t>& pids, const Interest& interest, Watched& watched);

    /// The nn.Modules of a process when its latest mark was first seen.
    struct Base {
        std::uint64_t start_ticks = 0;
        std::string mark;
        std::optional<NnModules> nn_modules;  ///< none: the mark was there before
    };

    Collector collector_;
    SiteNames names_;
    std::map<pid_t, Base> bases_;
    std::uint64_t number_ = 0;
};

/// Thread-safety: any thread, request() always the same.
class Watcher {
  public:
    explicit Watcher(std::chrono::milliseconds interval);
    ~Watcher();
    Watcher(const Watcher&) = delete;
    Watcher& operator=(const Watcher&) = delete;

    /// The latest; null: there is none yet.
    std::shared_ptr<const Watched> latest() const;
    void set_interest(const Interest& interest);
    /// Will be done; then take_message() has its outcome.
    void request(const KeyCommand& command) { errands_->begin(command); }
    std::optional<std::string> take_message();
    /// Becomes readable with each sample and each outcome.
    int descriptor() const { return event_; }

  private:
    void run();
    void tell() const;

    const std::chrono::milliseconds interval_;
    int event_;
    mutable std::mutex mutex_;
    std::condition_variable wake_;
    std::shared_ptr<const Watched> latest_;
    Interest interest_;
    bool sample_now_ = false;
    std::optional<std::string> message_;
    bool ends_ = false;
    std::optional<Errands> errands_;
    std::thread thread_;
};

/// What a watcher has told so far. Thread-safety: none.
class Received {
  public:
    /// Call when the watcher's descriptor is readable.
    void take(const Watcher& watcher);

    const History& history() const { return history_; }
    const DetailsOf& details() const { return details_; }

  private:
    History history_;
    DetailsOf details_;
    std::uint64_t number_ = 0;
};

}  // namespace memlab::tools
