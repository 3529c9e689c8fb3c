// The parts of a report, made from an Aggregator: for the JSON writer, and for the model that a
// tool makes of an event log. Their texts are valid UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/report.hpp"
#include "model/utf8.hpp"
#include "trace/aggregate/aggregator.hpp"

namespace memlab::model {

/// Steps::name of a kind of step. May throw std::bad_alloc.
std::string step_name(const trace::Aggregator& from, trace::StepKind kind, std::uint32_t path);

/// When a report is made.
enum class Moment : std::uint8_t {
    end,      ///< at the end of the recording
    running,  ///< a snapshot of a running process
};

/// Takes the entries of a table, in its order.
template <typename Entry>
class EntryTaker {
  public:
    EntryTaker() = default;
    EntryTaker(const EntryTaker&) = delete;
    EntryTaker& operator=(const EntryTaker&) = delete;

    /// That many follow, where it is known before.
    virtual void expect(std::size_t /*count*/) {}
    virtual void take(Entry&& entry) = 0;

  protected:
    ~EntryTaker() = default;
};

/// May throw std::bad_alloc. The aggregator must not change meanwhile.
class ReportBuilder {
  public:
    /// `damage`: LogInfo::damage.
    ReportBuilder(const trace::Aggregator& from, Moment moment, std::string damage = {})
        : from_(from), moment_(moment), damage_(std::move(damage)) {}

    /// All but the tables, which are empty in it.
    std::unique_ptr<Report> without_tables() const;

    // The tables, one entry at a time, so that the writer needs no memory for all of them.
    void each(EntryTaker<Device>& to) const;
    void each(EntryTaker<Context>& to) const;
    void each(EntryTaker<Thread>& to) const;
    void each(EntryTaker<Site>& to) const;
    void each(EntryTaker<Stack>& to) const;
    void each(EntryTaker<Frame>& to) const;
    void each(EntryTaker<PythonFrame>& to) const;
    void each(EntryTaker<Module>& to) const;
    void each(EntryTaker<Oom>& to) const;
    void each(EntryTaker<Mark>& to) const;
    void each(EntryTaker<Scope>& to) const;
    void each(EntryTaker<Steps>& to) const;
    void each(EntryTaker<Label>& to) const;
    void each(EntryTaker<NnModuleStack>& to) const;
    void each(EntryTaker<LiveAllocation>& to) const;
    void each(EntryTaker<Missed>& to) const;
    void each(EntryTaker<Coverage::Bypassed>& to) const;

  private:
    Device device(const trace::DeviceTotals& from) const;
    std::optional<Ledger> ledger(const trace::Ledger& from) const;
    /// Appends it, if anything is known of it.
    void add_limit(trace::LimitSource source, const trace::GroupLimit& from, std::uint64_t capacity,
                   std::vector<GroupLimit>& to) const;
    std::string text(std::uint32_t id) const;

    const trace::Aggregator& from_;
    const Moment moment_;
    const std::string damage_;
};

// The same parts of several entries.

CurveValues curve_values(const std::array<std::uint64_t, 4>& current);
Holders holders(const trace::Composition& from);
/// None where there is no limit.
std::optional<std::uint64_t> limit(std::uint64_t bytes);
/// Gives `to` the name and the class of an nn.Module, as far as `from` knows them.
template <typename NnModule>
void name_nn_module(const trace::Aggregator& from, std::uint32_t nn_module, NnModule& to) {
    if (const trace::NnModuleName* const name = from.nn_modules().name_of(nn_module)) {
        to.name = valid_utf8(from.string(name->name));
        if (name->class_name != 0) {
            to.class_name = valid_utf8(from.string(name->class_name));
        }
    }
}

/// The entry of NnModuleStats::holders() at this position, with nothing held.
NnModuleStack nn_module_stack(const trace::Aggregator& from, std::size_t holder);

}  // namespace memlab::model
