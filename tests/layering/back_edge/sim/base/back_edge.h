// Includes upwards, so that the layering test can be seen to fail.
#pragma once

#include "sim/plan/plan.h"
