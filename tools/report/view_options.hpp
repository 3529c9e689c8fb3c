// What a view of report/views/ is to show, from what the command line says.
#pragma once

#include "report/views/site_table.hpp"
#include "tools/report/report_options.hpp"

namespace memlab::tools {

/// Options that a command does not take keep the view's own defaults.
inline report::ViewOptions view_of(const ReportOptions& arguments) {
    report::ViewOptions view;
    view.style = style_of(arguments.looks);
    if (!arguments.sort.empty()) {
        view.order = report::order_of(arguments.sort);
    }
    view.top = arguments.top;
    view.templates = arguments.templates;
    view.filter = arguments.filter.text();
    view.working_directory = working_directory();
    view.device = arguments.device;
    return view;
}

}  // namespace memlab::tools
