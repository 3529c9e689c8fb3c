// Makes a report from an event log without JSON text in between: by the JSON writer's builder, and
// with the errors that the reader of its text would give, in the same words.
#include <string>
#include <utility>

#include "model/report_builder.hpp"
#include "report/reading/invalid.hpp"
#include "report/reading/reader.hpp"

namespace memlab::report {

namespace {

/// A visitor of fields(): fills the tables, checks what may be wrong in a recording, and brings the
/// rest into the form that it has when it was read.
class ModelMaker {
  public:
    /// `position`: of the object in its table. All arguments must outlive this.
    ModelMaker(const model::ReportBuilder& builder, const model::TableSizes& sizes,
               const ReportPath& place, std::size_t position)
        : builder_(builder), sizes_(sizes), place_(place), position_(position) {}

    // Any value is valid: nothing to check.
    void line() {}
    template <typename Value>
    void constant(model::FieldName /*name*/, Value /*value*/) {}
    void position(model::FieldName /*name*/) {}
    void number(model::FieldName /*name*/, std::uint64_t /*value*/) {}
    void number_if_any(model::FieldName /*name*/, std::uint64_t /*value*/) {}
    void number_if_known(model::FieldName /*name*/, const std::optional<std::uint64_t>& /*value*/) {
    }
    void flag_if_any(model::FieldName /*name*/, bool /*value*/) {}
    void number_or_null(model::FieldName /*name*/, std::optional<std::uint64_t> /*value*/) {}
    void numbers(model::FieldName /*name*/, const std::vector<std::uint64_t>& /*values*/) {}
    void extra(model::FieldName /*name*/, std::uint64_t /*value*/) {}
    void signed_number(model::FieldName /*name*/, std::int64_t /*value*/) {}
    void real(model::FieldName /*name*/, double /*value*/) {}
    void ratio(model::FieldName /*name*/, std::optional<double> /*value*/) {}
    void flag(model::FieldName /*name*/, bool /*value*/) {}
    void text(model::FieldName /*name*/, const std::string& /*value*/) {}
    void text_if_any(model::FieldName /*name*/, const std::string& /*value*/) {}
    void text_or_null(model::FieldName /*name*/, const std::optional<std::string>& /*value*/) {}
    void texts(model::FieldName /*name*/, const std::vector<std::string>& /*values*/) {}
    void texts_if_known(model::FieldName /*name*/, const std::vector<std::string>& /*values*/) {}
    void curve(model::FieldName /*name*/, const std::optional<model::CurveSummary>& /*curve*/,
               bool) {}
    template <typename Fields>
    void for_others(Fields /*fields*/) {}

    void natural(model::FieldName name, std::int64_t value) {
        if (value < 0) {
            ReportPath(place_, name, 0)
                .fail("is the number " + std::to_string(value) + ", not " + whole_number);
        }
    }
    void natural_if_any(model::FieldName name, std::optional<std::int64_t> value) {
        natural(name, value.value_or(0));
    }
    template <typename Line>
    void source_line(model::FieldName /*name*/, Line& value) {
        value = std::in_range<int>(value) ? value : 0;
    }
    void index(model::FieldName name, std::size_t value, model::Table table) {
        if (value >= sizes_[table]) {
            ReportPath(place_, name, 0).require_index(value, sizes_[table], name_of(table));
        }
    }
    void index_if_any(model::FieldName name, std::size_t value, model::Table table) {
        if (value != 0) {
            index(name, value, table);
        }
    }
    void indexes(model::FieldName name, const std::vector<std::size_t>& values,
                 model::Table table) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (values[i] >= sizes_[table]) {
                const ReportPath list(place_, name, 0);
                ReportPath(list, nullptr, i)
                    .require_index(values[i], sizes_[table], name_of(table));
            }
        }
    }
    void earlier_index(model::FieldName name, std::optional<std::size_t> value) {
        if (value) {
            ReportPath(place_, name, 0).require_index(*value, position_, "what comes before it");
        }
    }

    template <typename Object>
    void object(model::FieldName name, Object& value) {
        make(ReportPath(place_, name, 0), 0, value);
    }
    template <typename Object>
    void object_if_known(model::FieldName name, Object& value) {
        object(name, value);
    }
    template <typename Object>
    void object_if_any(model::FieldName name, Object& value) {
        object(name, value);
    }
    template <typename Object>
    void object_if_any(model::FieldName name, std::optional<Object>& value) {
        object_or_null(name, value);
    }
    template <typename Object>
    void object_or_null(model::FieldName name, std::optional<Object>& value) {
        if (value) {
            object(name, *value);
        }
    }
    template <typename Fields>
    void group(model::FieldName name, Fields fields) {
        const ReportPath place(place_, name, 0);
        ModelMaker inner(builder_, sizes_, place, 0);
        fields(inner);
    }

    template <typename Item>
    void list(model::FieldName name, std::vector<Item>& items) {
        list(name, items, [](Item& item, ModelMaker& inner) { Item::fields(item, inner); });
    }
    template <typename Item, typename Fields>
    void list(model::FieldName name, std::vector<Item>& items, Fields fields) {
        const ReportPath place(place_, name, 0);
        for (std::size_t i = 0; i < items.size(); ++i) {
            const ReportPath at(place, nullptr, i);
            ModelMaker inner(builder_, sizes_, at, i);
            fields(items[i], inner);
        }
    }
    template <typename Item>
    void list_if_any(model::FieldName name, std::vector<Item>& items) {
        list(name, items);
    }
    template <typename Entry>
    void table(model::FieldName name, std::vector<Entry>& entries, model::Layout /*layout*/) {
        Appender<Entry> appender(entries);
        builder_.each(appender);
        list(name, entries);
    }
    template <typename Entry>
    void table_if_any(model::FieldName name, std::vector<Entry>& entries, model::Layout layout) {
        table(name, entries, layout);
    }

    template <typename Value>
    void named(model::FieldName /*name*/, model::Named<Value>& members) {
        members.sort();
    }
    template <typename Value>
    void named_if_any(model::FieldName /*name*/, std::optional<model::Named<Value>>& members) {
        if (members) {
            members->sort();
        }
    }
    void named_texts(model::FieldName /*name*/, model::Named<std::string>& members) {
        members.sort();
    }
    void named_numbers(model::FieldName /*name*/, model::Named<std::uint64_t>& members,
                       model::FieldName /*signed_name*/,
                       const std::optional<std::int64_t>& /*signed_value*/) {
        members.sort();
    }

    void rows(model::FieldName /*columns*/, model::FieldName rows,
              const model::Timeline& timeline) {
        for (std::size_t i = 0; i < timeline.rows.size(); ++i) {
            std::size_t column = 1;
            for (const auto& curve : timeline.rows[i].curves) {
                const model::TimelineRow::Values values =
                    curve.value_or(model::TimelineRow::Values{});
                for (const std::uint64_t value : {values.min, values.max, values.last}) {
                    if (value == model::TimelineRow::unknown) {
                        const ReportPath list(place_, rows, 0);
                        const ReportPath row(list, nullptr, i);
                        ReportPath(row, nullptr, column)
                            .fail(std::string("is null, not ") + whole_number);
                    }
                    ++column;
                }
            }
        }
    }

  private:
    template <typename Entry>
    class Appender final : public model::EntryTaker<Entry> {
      public:
        explicit Appender(std::vector<Entry>& to) : to_(to) {}
        void expect(std::size_t count) override { to_.reserve(count); }
        void take(Entry&& entry) override { to_.push_back(std::move(entry)); }

      private:
        std::vector<Entry>& to_;
    };

    template <typename Object>
    void make(const ReportPath& place, std::size_t position, Object& value) {
        ModelMaker inner(builder_, sizes_, place, position);
        Object::fields(value, inner);
    }

    const model::ReportBuilder& builder_;
    const model::TableSizes& sizes_;
    const ReportPath& place_;
    const std::size_t position_;
};

}  // namespace

void forget_generated_addresses(model::Report& report) {
    for (model::Frame& frame : report.frames) {
        frame.address = frame.module == 0 ? 0 : frame.address;
    }
}

ReadResult make_report(const trace::Aggregator& from, model::Moment moment) {
    return without_exceptions([&] {
        model::TableSizes sizes;
        sizes[model::Table::sites] = from.sites().size();
        sizes[model::Table::stacks] = from.stacks().size();
        sizes[model::Table::frames] = from.frames().size();
        sizes[model::Table::python_frames] = from.python_frames().size();
        sizes[model::Table::modules] = from.modules().size();
        const model::ReportBuilder builder(from, moment);
        model::Report report = std::move(*builder.without_tables());
        const ReportPath place;
        ModelMaker maker(builder, sizes, place, 0);
        model::Report::fields(report, maker);
        forget_generated_addresses(report);
        return report;
    });
}

}  // namespace memlab::report
