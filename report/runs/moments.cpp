#include "report/runs/moments.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <queue>
#include <utility>

#include "report/find_event_log.hpp"
#include "report/read_ahead.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/json/bounded_sum.hpp"

namespace memlab::report {

namespace {

constexpr std::array curves = {trace::CurveName::allocated, trace::CurveName::reserved};
using Bytes = std::array<std::uint64_t, curves.size()>;

/// The log of one process, record by record.
class Walk {
  public:
    Walk(const std::string& log, std::uint64_t start_ns) : log_(log), start_ns_(start_ns) {}

    bool started() const { return log_.started(); }

    /// Goes on to the next record. False at the end.
    bool next() { return log_.next(state_); }

    /// Of the latest record, on the common clock.
    std::uint64_t time_ns() const {
        std::uint64_t time = start_ns_;
        add_to(time, state_.duration_ns());
        return time;
    }

    Bytes held(std::uint64_t device) const {
        Bytes bytes{};
        if (device < state_.devices().size() && state_.devices()[device] != nullptr) {
            for (std::size_t i = 0; i < bytes.size(); ++i) {
                bytes[i] = state_.devices()[device]->curve(curves[i]).current;
            }
        }
        return bytes;
    }

    /// Nothing is missing that the process had recorded, and all of it could be added up. After
    /// the end.
    bool whole() const {
        const trace::LogStatus status = log_.result().status;
        return (status == trace::LogStatus::complete || status == trace::LogStatus::cut_off) &&
               state_.end().events_dropped == 0 && !state_.integrity().incomplete;
    }

  private:
    LogWalk log_;
    std::uint64_t start_ns_;
    trace::Aggregator state_;
};

/// What a process holds of a GPU.
struct Held {
    Bytes now{};
    Bytes most{};        ///< of its values in this moment, if it has any
    bool moved = false;  ///< it has
};

/// A GPU whose peaks are looked for.
struct Watched {
    GpuTogether* gpu = nullptr;
    std::vector<Held> held;  ///< by index into GpuTogether::members
    Bytes sum{};             ///< of all `now`
    Bytes peak{};
    std::array<std::uint64_t, curves.size()> peak_ns{};
    bool lost = false;  ///< one of its logs is missing or not whole
};

/// A device of a process, as one of the GPU's users.
struct Use {
    std::size_t watched = 0;
    std::size_t user = 0;
    std::uint64_t device = 0;  ///< DeviceInfo::index in its own process
};

struct User {
    std::size_t member = 0;
    std::string log;
    std::uint64_t start_ns = 0;  ///< on the common clock
    std::vector<Use> uses;
    std::unique_ptr<Walk> walk;
};

/// All that begins or goes on, by time.
struct Due {
    std::uint64_t time_ns = 0;
    std::size_t user = 0;

    bool operator>(const Due& other) const {
        return time_ns != other.time_ns ? time_ns > other.time_ns : user > other.user;
    }
};

class Merge {
  public:
    Merge(const RunCollection& run, std::vector<GpuTogether>& gpus) : run_(run) {
        for (GpuTogether& gpu : gpus) {
            if (!gpu.allocated.exact() || !gpu.reserved.exact()) {
                watch(gpu);
            }
        }
    }

    void run() {
        find_logs();
        for (std::size_t i = 0; i < users_.size(); ++i) {
            if (matters(users_[i])) {
                due_.push({users_[i].start_ns, i});
            }
        }
        while (!due_.empty()) {
            const std::uint64_t moment = due_.top().time_ns;
            while (!due_.empty() && due_.top().time_ns == moment) {
                const std::size_t user = due_.top().user;
                due_.pop();
                if (!advance(user, moment)) {
                    give_up(users_[user]);
                }
            }
            look(moment);
        }
        for (const Watched& each : watched_) {
            if (!each.lost) {
                conclude(each);
            }
        }
    }

  private:
    void watch(GpuTogether& gpu) {
        const std::size_t index = watched_.size();
        watched_.push_back({.gpu = &gpu, .held = std::vector<Held>(gpu.members.size())});
        for (std::size_t i = 0; i < gpu.members.size(); ++i) {
            const std::size_t member = gpu.members[i];
            auto user = std::find_if(users_.begin(), users_.end(),
                                     [&](const User& each) { return each.member == member; });
            if (user == users_.end()) {
                user = users_.insert(user, User{});
                user->member = member;
            }
            user->uses.push_back({index, i, gpu.devices[i]});
        }
    }

    /// The logs, and the common clock of their processes. Without a log its GPUs are given up.
    void find_logs() {
        constexpr std::uint64_t tolerance_ns = 1'000'000'000;
        std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
        std::uint64_t most = 0;
        std::vector<std::uint64_t> monotonic;
        for (User& user : users_) {
            const RunMember& member = run_.members[user.member];
            user.log = find_event_log(member.file, member.report);
            const auto first = first_record_of(user.log);
            const bool whole = member.report.log.stopped_because.empty() &&
                               (member.from_log || member.report.process.ended != "running");
            if (!first || !whole) {
                give_up(user);
                monotonic.push_back(0);
                continue;
            }
            user.start_ns = first->start_wall_ns;
            monotonic.push_back(first->start_monotonic_ns);
            const std::uint64_t boot = first->start_wall_ns - first->start_monotonic_ns;
            least = std::min(least, boot);
            most = std::max(most, boot);
        }
        if (most >= least && most - least <= tolerance_ns) {
            offset_ns_ = most;
            for (std::size_t i = 0; i < users_.size(); ++i) {
                users_[i].start_ns = monotonic[i];
            }
        }
    }

    void give_up(const User& user) {
        for (const Use& use : user.uses) {
            watched_[use.watched].lost = true;
        }
    }

    /// Somebody wants to know of it.
    bool matters(const User& user) const {
        return std::any_of(user.uses.begin(), user.uses.end(),
                           [this](const Use& use) { return !watched_[use.watched].lost; });
    }

    /// Takes the user past all its records of `moment`, and notes when it goes on. False where that
    /// cannot be had.
    bool advance(std::size_t index, std::uint64_t moment) {
        User& user = users_[index];
        if (user.walk == nullptr) {
            user.walk = std::make_unique<Walk>(user.log, user.start_ns);
            if (!user.walk->started() || !user.walk->next()) {
                return false;
            }
        }
        // The record that the walk stands at is of this moment; those behind it may be, too.
        do {
            if (user.walk->time_ns() > moment) {
                due_.push({user.walk->time_ns(), index});
                return true;
            }
            note(user);
        } while (user.walk->next());
        if (!user.walk->whole()) {
            return false;
        }
        if (!run_.members[user.member].running) {
            user.walk.reset();
            release(user);
        }
        return true;
    }

    void note(const User& user) {
        for (const Use& use : user.uses) {
            set(use, user.walk->held(use.device));
        }
    }
    void release(const User& user) {
        for (const Use& use : user.uses) {
            set(use, Bytes{});
        }
    }

    void set(const Use& use, const Bytes& bytes) {
        Watched& watched = watched_[use.watched];
        Held& held = watched.held[use.user];
        if (held.now == bytes) {
            return;
        }
        if (!held.moved) {
            held.moved = true;
            held.most = {};
            touched_.emplace_back(use.watched, use.user);
        }
        for (std::size_t i = 0; i < bytes.size(); ++i) {
            held.most[i] = std::max(held.most[i], bytes[i]);
            watched.sum[i] += bytes[i] - held.now[i];
        }
        held.now = bytes;
    }

    /// Now that all changes of the moment are in: what one process gave back another may have taken
    /// at the same nanosecond. What a single process held in between counts beside what the others
    /// hold after it.
    void look(std::uint64_t moment) {
        for (const auto& [index, user] : touched_) {
            Watched& watched = watched_[index];
            Held& held = watched.held[user];
            for (std::size_t i = 0; i < curves.size(); ++i) {
                const std::uint64_t together = watched.sum[i] - held.now[i] + held.most[i];
                if (together > watched.peak[i]) {
                    watched.peak[i] = together;
                    watched.peak_ns[i] = moment;
                }
            }
            held.moved = false;
        }
        touched_.clear();
    }

    void conclude(const Watched& watched) const {
        const std::array peaks = {&watched.gpu->allocated, &watched.gpu->reserved};
        for (std::size_t i = 0; i < peaks.size(); ++i) {
            TogetherPeak& peak = *peaks[i];
            peak.at_least = watched.peak[i];
            peak.at_most = watched.peak[i];
            peak.at_wall_ns = watched.peak_ns[i];
            add_to(peak.at_wall_ns, offset_ns_);
            peak.from_logs = true;
        }
    }

    const RunCollection& run_;
    std::vector<Watched> watched_;
    std::vector<User> users_;
    std::uint64_t offset_ns_ = 0;  ///< of the wall clock to the common one
    std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
    std::vector<std::pair<std::size_t, std::size_t>> touched_;  ///< GPU and user, of this moment
};

}  // namespace

void read_moments(const RunCollection& run, std::vector<GpuTogether>& gpus) {
    Merge(run, gpus).run();
}

}  // namespace memlab::report
