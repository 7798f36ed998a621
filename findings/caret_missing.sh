#!/usr/bin/env bash
# caret 6.0-93 and 7.0-1, which judges predictions in R: confusionMatrix(), multiClassSummary() and postResample() leave
# out rows whose prediction is missing, without a word. R counts NaN as missing. So a network that answers half of the
# rows, or half of whose outputs have become NaN, is as good as on the rest. Rows with an infinite output stay, so a
# network that has broken looks right or wrong by how it broke. The manual says of postResample() that missing values
# are ignored, and of confusionMatrix() nothing.
# Seen, the classes a a b b b and the predictions a, none, b, none, none, of which 2 of 5 are right: confusionMatrix()
# has accuracy 1 and kappa 1, multiClassSummary() accuracy 1 and F1 1, and postResample() accuracy 1. The values 1 2 3 4
# and the predictions 1 NaN 3 NaN: RMSE 0, MAE 0 and Rsquared 1. With Inf for NaN, RMSE and MAE are Inf.
# Frugal: accuracy, F1 and r2 count every row (train/metrics/metrics.h); tests/train/metrics/metrics_test.cpp, "metrics:
# a table by hand". A loss that is not finite stops the run; tests/apps/bad_input_test.cpp, "a loss that is not finite
# stops the run and keeps the checkpoint". docs/guide/using.md says it below the table of metrics.
. "$(dirname "$0")/packages.sh"
packages bookworm 'r-cran-caret=6.0-93*'
packages trixie 'r-cran-caret=7.0-1*'
for suite in bookworm trixie; do
  : >"$work/$suite/etc/R/Renviron"
  cat >"$work/$suite/usr/bin/which" <<'END_OF_PROGRAM'
#!/bin/sh
command -v "$1"
END_OF_PROGRAM
  chmod +x "$work/$suite/usr/bin/which"
  cat >"$work/$suite/tmp/run.R" <<'END_OF_PROGRAM'
suppressMessages(library(caret))
levels <- c("a", "b")
classes <- factor(c("a", "a", "b", "b", "b"), levels)
answers <- factor(c("a", NA, "b", NA, NA), levels)
show <- function(name, x) cat(name, paste(names(x), format(x, digits = 3, trim = TRUE)), "\n")
show("confusionMatrix", confusionMatrix(answers, classes)$overall[c("Accuracy", "Kappa")])
show("multiClassSummary", multiClassSummary(data.frame(obs = classes, pred = answers), levels)[c("Accuracy", "F1")])
show("postResample", postResample(answers, classes))
values <- 1:4
show("NaN:", postResample(c(1, NaN, 3, NaN), values))
show("Inf:", postResample(c(1, Inf, 3, Inf), values)[c("RMSE", "MAE")])
END_OF_PROGRAM
  libraries=/usr/lib/x86_64-linux-gnu
  inside "$suite" TZ=UTC EDITOR=vi PAGER=cat R_HOME=/usr/lib/R R_SHARE_DIR=/usr/share/R/share \
    R_LIBS=/usr/lib/R/library:/usr/lib/R/site-library \
    LD_LIBRARY_PATH="/usr/lib/R/lib:$libraries/blas:$libraries/lapack" /usr/lib/R/bin/exec/R --vanilla --no-echo \
    -f /tmp/run.R | sed 's/ *$//' | tee "$work/out"
  while read -r line; do expect "$suite: $line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
confusionMatrix Accuracy 1 Kappa 1
multiClassSummary Accuracy 1 F1 1
postResample Accuracy 1 Kappa 1
NaN: RMSE 0 Rsquared 1 MAE 0
Inf: RMSE Inf MAE Inf
END_OF_LINES
done
done_with_it
