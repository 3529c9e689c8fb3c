#include "model/json_writer.hpp"

#include <optional>
#include <utility>

#include "model/json_members.hpp"

namespace memlab::model {
namespace {

/// Writes what the fields() of a report visit; the entries of its tables come from a builder.
class ReportWriter : public JsonMembers<ReportWriter> {
  public:
    ReportWriter(JsonOutput& json, const ReportBuilder& builder)
        : JsonMembers(json), builder_(builder) {}

    using JsonMembers::named_numbers;

    void position(FieldName name) { json_.member(name, position_); }
    void index(FieldName name, std::size_t value, Table) { json_.member(name, value); }
    void earlier_index(FieldName name, const std::optional<std::size_t>& value) {
        or_null(name, value);
    }
    void index_if_any(FieldName name, std::size_t value, Table) { number_if_any(name, value); }
    void indexes(FieldName name, const std::vector<std::size_t>& values, Table) {
        numbers(name, values);
    }

    /// The one that may be negative stands where the order of the names has it.
    void named_numbers(FieldName name, const Named<std::uint64_t>& members, FieldName signed_name,
                       const std::optional<std::int64_t>& signed_value) {
        json_.key(name);
        json_.begin_object();
        bool is_written = !signed_value;
        for (const auto& [key, value] : members) {
            if (!is_written && key > signed_name.text()) {
                json_.member(signed_name, *signed_value);
                is_written = true;
            }
            json_.member(key, value);
        }
        json_.end_object();
    }

    template <typename Entry>
    void table(FieldName name, const std::vector<Entry>&, Layout layout) {
        json_.key(name);
        json_.begin_array();
        Entries<Entry> entries(*this, layout, nullptr);
        builder_.each(entries);
        json_.end_array();
    }
    template <typename Entry>
    void table_if_any(FieldName name, const std::vector<Entry>&, Layout layout) {
        Entries<Entry> entries(*this, layout, name);
        builder_.each(entries);
        if (entries.any()) {
            json_.end_array();
        }
    }

    void curve(FieldName name, const std::optional<CurveSummary>& summary, bool /*optional*/) {
        if (summary) {
            object(name, *summary);
            return;
        }
        json_.key(name);
        json_.begin_object();
        Nulls nulls{json_};
        const CurveSummary none;
        CurveSummary::fields(none, nulls);
        json_.end_object();
    }
    void rows(FieldName columns, FieldName rows, const Timeline& timeline);

  private:
    struct Nulls {
        JsonOutput& json;
        void number(FieldName name, std::uint64_t /*value*/) const {
            json.key(name);
            json.null();
        }
    };

    /// Writes the entries of a table. With a name it begins the table before the first one.
    template <typename Entry>
    class Entries final : public EntryTaker<Entry> {
      public:
        Entries(ReportWriter& to, Layout layout, const char* name)
            : to_(to), layout_(layout), name_(name) {}

        void take(Entry&& entry) override {
            if (count_ == 0 && name_ != nullptr) {
                to_.json_.key(name_);
                to_.json_.begin_array();
            }
            if (layout_ == Layout::lines) {
                to_.json_.new_line();
            }
            to_.position_ = count_++;
            to_.write(entry);
        }
        bool any() const { return count_ != 0; }

      private:
        ReportWriter& to_;
        const Layout layout_;
        const char* const name_;
        std::size_t count_ = 0;
    };

    const ReportBuilder& builder_;
    std::size_t position_ = 0;
};

void ReportWriter::rows(FieldName columns, FieldName rows, const Timeline& timeline) {
    json_.key(columns);
    json_.begin_array();
    json_.string("bucket");
    for (const char* const curve : curve_names) {
        for (const char* const figure : row_figures) {
            json_.string(std::string(curve) + figure);
        }
    }
    json_.end_array();
    json_.key(rows);
    json_.begin_array();
    for (const TimelineRow& row : timeline.rows) {
        json_.new_line();
        json_.begin_array();
        json_.number((row.begin_ns - timeline.start_ns) / timeline.bucket_ns);
        for (const auto& curve : row.curves) {
            constexpr TimelineRow::Values unknown = {TimelineRow::unknown, TimelineRow::unknown,
                                                     TimelineRow::unknown};
            const TimelineRow::Values& values = curve ? *curve : unknown;
            for (const std::uint64_t value : {values.min, values.max, values.last}) {
                if (value == TimelineRow::unknown) {
                    json_.null();
                } else {
                    json_.number(value);
                }
            }
        }
        json_.end_array();
    }
    json_.end_array();
}

}  // namespace

bool write_json(ByteSink& sink, const trace::Aggregator& from, Moment moment,
                const std::string& damage) {
    JsonOutput json(sink);
    const ReportBuilder builder(from, moment, damage);
    ReportWriter(json, builder).write(*builder.without_tables());
    return json.finish();
}

std::string report_to_string(const trace::Aggregator& aggregator, Moment moment,
                             const std::string& damage) {
    StringSink sink;
    write_json(sink, aggregator, moment, damage);
    return std::move(sink.text);
}

}  // namespace memlab::model
