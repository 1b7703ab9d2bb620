#include "sim/cli/validate_collectives.h"

#include "sim/study/validate_collectives.h"

namespace shardsim {

int report_collectives(const CsvTable& table, const Context& context, bool verbose) {
  const CollectiveValidation v = validate_collectives(table, CollectiveSources::shipped());
  switch (context.format) {
    case Format::json: write_output(context, collective_validation_json(v)); break;
    case Format::csv: write_output(context, collective_validation_csv(v)); break;
    case Format::table: write_output(context, collective_validation_table(v, verbose)); break;
  }
  return kOk;
}

}  // namespace shardsim
