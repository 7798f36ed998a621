#!/usr/bin/env bash
# fastText 0.9.2 counts its own test too well. `fasttext test` leaves out a line whose label no line of the training
# had, without a word: such a line is always answered wrongly, and does not count. `fasttext test-label` never counts
# how often a label occurs: the recall is missing, and what is called the F1 score is twice the precision, up to 2.
# Seen, trained on the labels a and b. A test of five lines, two of them with the label c: N 3, P@1 1 and R@1 1,
# where 3 of 5 are answered rightly; `predict` answers all five. A file of c alone: N 0 and nan. A test of four lines of
# a, of which one is answered with b: the label a has the precision 1.000, F1-Score 2.000000 and Recall --------; right
# are a recall of 0.75 and an F1 of 0.857.
# Frugal: a label that the training does not have is an error that names it (apps/config/data/make_text.cpp, labels_of),
# and F1 is counted from all of a confusion matrix; tests/train/metrics/metrics_test.cpp, "metrics: a table by hand".
# docs/guide/own_data.md, "Texts", says how to compare with fastText.
. "$(dirname "$0")/packages.sh"
packages bookworm 'fasttext=0.9.2*'
packages trixie 'fasttext=0.9.2*'
for suite in bookworm trixie; do
  inside "$suite" sh -c '
    cd /tmp
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
      echo "__label__a red apple fruit sweet"
      echo "__label__b blue sea water deep"
    done >train
    fasttext supervised -input train -output model -thread 1 -epoch 50 -lr 0.5 -verbose 0 >/dev/null 2>&1
    printf "__label__%s\n" "a red apple" "b blue sea" "c green tree" "c tall pine" "a sweet fruit" >five
    printf "__label__%s\n" "c green tree" "c tall pine" >unknown
    printf "__label__%s\n" "a red apple" "a sweet fruit" "a red fruit" "a blue sea" >four
    echo five: $(fasttext test model.bin five)
    echo answers: $(fasttext predict model.bin five)
    echo unknown: $(fasttext test model.bin unknown)
    echo four: $(fasttext test-label model.bin four)' 2>/dev/null | sed "s/^/$suite: /" |
    tee "$work/out"
  while read -r line; do expect "$suite: $line" grep -qF "$suite: $line" "$work/out"; done <<'END_OF_LINES'
five: N 3 P@1 1 R@1 1
unknown: N 0 P@1 nan R@1 nan
four: F1-Score : 2.000000 Precision : 1.000000 Recall : -------- __label__a
END_OF_LINES
  answers=$(grep "^$suite: answers" "$work/out" | tr ' ' '\n' | grep -c __label__)
  expect "$suite: five lines are answered" [ "$answers" = 5 ]
done
done_with_it
