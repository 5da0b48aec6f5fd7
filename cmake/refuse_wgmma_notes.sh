#!/bin/sh
# refuse_wgmma_notes.sh COMMAND…: compiles, and fails if ptxas notes that it waits for products where the source does not
# (C7510 to C7519). It has no option that makes an error of these notes.
output=$("$@" 2>&1)
status=$?
if [ -n "$output" ]; then
  printf '%s\n' "$output" >&2
fi
case $output in
  *'(C75'*) exit 1 ;;
esac
exit "$status"
