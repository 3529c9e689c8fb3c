#include "report/timeline/moments.hpp"

#include <algorithm>
#include <concepts>
#include <utility>

#include "model/json_writer.hpp"
#include "model/report_builder.hpp"
#include "report/reading/read_ahead.hpp"
#include "report/text/units.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report {

namespace {

/// The time from which on a record counts; none: it has no time. A checkpoint's state is of its own
/// time.
template <typename Record>
std::optional<std::uint64_t> time_of(const Record& record, const trace::Aggregator& figures) {
    if constexpr (std::same_as<Record, trace::Checkpoint>) {
        return record.time_ns;
    } else if constexpr (requires { record.time_ns; }) {
        return std::max(record.time_ns, figures.duration_ns());
    } else {
        return std::nullopt;
    }
}

}  // namespace

class MomentCollector::Sink final : public trace::GenericSink<Sink>, public LogFollower {
  public:
    Sink(MomentCollector& collector, trace::Aggregator& figures,
         std::unique_ptr<trace::RecordSink> next)
        : moments_(collector.found_), figures_(figures), next_(std::move(next)) {}

    template <typename Record>
    void take(const Record& record) {
        if (const auto time = time_of(record, figures_)) {
            pass(*time);
        }
        if constexpr (std::same_as<Record, trace::Event>) {
            if (record.type == trace::EventType::label && made_ != 0) {
                label(record);
                return;
            }
        }
        apply(record);
        if constexpr (std::same_as<Record, trace::Event>) {
            if (record.type == trace::EventType::mark) {
                reach(figures_.string(record.name));
            }
        }
    }

    void finish(const trace::LogReadResult& read) override {
        if (auto* const follower = dynamic_cast<LogFollower*>(next_.get())) {
            follower->finish(read);
        }
        pass(std::nullopt);
        for (Moment& moment : moments_) {
            if (moment.report) {
                name_nn_modules(*moment.report);
            }
            if (read.gap && moment.time_ns > read.gap->from_ns &&
                moment.time_ns < read.gap->to_ns) {
                moment.report.reset();
            }
        }
    }

  private:
    template <typename Record>
    void apply(const Record& record) {
        if (next_) {
            next_->on(record);
        } else {
            figures_.on(record);
        }
    }

    /// Its nn.Module held the memory at the moments, too, at which that was there.
    void label(const trace::Event& event) {
        const trace::Live* const live = figures_.labelled_at(event.address);
        const std::uint32_t before = live != nullptr ? live->nn_modules : 0;
        apply(event);
        if (live == nullptr || live->nn_modules == before) {
            return;
        }
        for (std::size_t i = 0; i < moments_.size(); ++i) {
            if (is_made_[i] && moments_[i].report && live->serial <= serials_[i]) {
                if (before != 0) {
                    Holding& from = holding(*moments_[i].report, before);
                    --from.live_count;
                    from.live_bytes -= live->size;
                }
                if (live->nn_modules != 0) {
                    Holding& to = holding(*moments_[i].report, live->nn_modules);
                    ++to.live_count;
                    to.live_bytes += live->size;
                }
            }
        }
    }
    using Holding = model::NnModuleStack::Holding;
    Holding& holding(model::Report& report, std::uint32_t number) {
        const trace::NnModuleHolding& of = figures_.nn_modules().holdings()[number - 1];
        for (std::size_t i = report.nn_modules.size(); i < of.holder; ++i) {
            report.nn_modules.push_back(model::nn_module_stack(figures_, i));
        }
        std::vector<Holding>& sites = report.nn_modules[of.holder - 1].sites;
        const auto known = std::find_if(sites.begin(), sites.end(),
                                        [&](const Holding& each) { return each.site == of.site; });
        return known != sites.end() ? *known : sites.emplace_back(Holding{.site = of.site});
    }

    /// The next record is of that time, or there is none: what ends before it is known.
    void pass(std::optional<std::uint64_t> time_ns) {
        for (std::size_t i = 0; i < moments_.size() && made_ != moments_.size(); ++i) {
            Moment& moment = moments_[i];
            if (moment.time_ns && (!time_ns || *moment.time_ns < *time_ns) && !is_made_[i]) {
                moment.report = make_report(figures_, model::Moment::running).report;
                is_made_[i] = true;
                serials_[i] = figures_.latest_serial();
                ++made_;
            }
        }
    }

    /// They may get their names after the moment.
    void name_nn_modules(model::Report& report) {
        for (model::NnModuleStack& stack : report.nn_modules) {
            model::name_nn_module(figures_, static_cast<std::uint32_t>(stack.nn_module), stack);
        }
    }

    void reach(const std::string& mark) {
        for (Moment& moment : moments_) {
            if (!moment.time_ns && moment.mark == mark) {
                moment.time_ns = figures_.duration_ns();
            }
        }
    }

    std::vector<Moment>& moments_;
    std::vector<bool> is_made_ = std::vector<bool>(moments_.size());
    std::vector<std::uint64_t> serials_ = std::vector<std::uint64_t>(moments_.size());
    std::size_t made_ = 0;
    trace::Aggregator& figures_;
    std::unique_ptr<trace::RecordSink> next_;
};

std::optional<std::uint64_t> time_of_moment(const std::string& moment) {
    std::string ignored;
    return moment == "peak" || moment == "end"
               ? std::nullopt
               : parse_moment(moment, model::Report(), std::nullopt, &ignored);
}

MomentCollector::MomentCollector(const std::vector<std::string>& moments) {
    for (const std::string& text : moments) {
        if (text.empty() || text == "peak" || text == "end") {
            continue;
        }
        // A mark may have a time for its name: it counts.
        asked_.push_back({text, std::nullopt, std::nullopt});
        if (const auto time = time_of_moment(text)) {
            asked_.push_back({"", time, std::nullopt});
        }
    }
}

LogSinkFactory MomentCollector::sink_factory(const LogSinkFactory& next) {
    if (!any()) {
        return next;
    }
    return [this, next](const std::string& log, trace::Aggregator& figures) {
        log_ = log;
        found_ = asked_;
        return std::make_unique<Sink>(*this, figures, next ? next(log, figures) : nullptr);
    };
}

std::optional<model::Report> MomentCollector::at(const std::string& log,
                                                 std::uint64_t time_ns) const {
    const auto found = std::find_if(found_.begin(), found_.end(), [&](const Moment& moment) {
        return moment.time_ns == time_ns;
    });
    return log != log_ || found == found_.end() ? std::nullopt : found->report;
}

namespace {

/// Frames and modules are numbered as the log defines them.
void name_frames(model::Report& report, const model::Report& named) {
    const std::size_t frames = std::min(report.frames.size(), named.frames.size());
    for (std::size_t i = 0; i < frames; ++i) {
        model::Frame& frame = report.frames[i];
        if (frame.module == named.frames[i].module && frame.address == named.frames[i].address) {
            frame.source = named.frames[i].source;
        }
    }
}

/// A report of an older memlab tells of nn.Modules only what their calls allocated.
void leave_out_labels(model::Report& report, const model::Report& named) {
    const auto by_label = [](const model::NnModuleStack& each) { return each.by_label; };
    if (std::none_of(named.nn_modules.begin(), named.nn_modules.end(), by_label)) {
        for (model::NnModuleStack& each : report.nn_modules) {
            if (each.by_label) {
                each.sites.clear();
            }
        }
    }
}

}  // namespace

std::optional<model::Report> report_at(const std::string& log, std::uint64_t time_ns,
                                       const model::Report& named,
                                       const MomentCollector& collected) {
    std::optional<model::Report> made = collected.at(log, time_ns);
    if (!made) {
        MomentCollector one(time_ns);
        trace::Aggregator figures;
        const auto sink = one.sink_factory()(log, figures);
        const trace::LogReadResult read = read_log_ahead(log, *sink);
        dynamic_cast<LogFollower&>(*sink).finish(read);
        made = one.at(log, time_ns);
    }
    if (made) {
        name_frames(*made, named);
        leave_out_labels(*made, named);
    }
    return made;
}

std::string not_replayable(const model::Report& report, const std::string& moment) {
    const auto& gap = report.log.gap;
    const std::string from = gap && gap->from_ns ? ", up to " + format_duration(*gap->from_ns) : "";
    const std::string to =
        gap && gap->to_ns ? ", from " + format_duration(*gap->to_ns) + " on" : "";
    return "what was live at " + moment + " is not known: the event log keeps its beginning" +
           from + ", and its newest part" + to + " (MEMLAB_LOG_LIMIT); choose a moment in these";
}

}  // namespace memlab::report
