// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
)

func TestIsFromAPIServer(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"an error with a reason":    {unavailable, true},
		"an error without a reason": {fmt.Errorf("listing: %w", makeError(http.StatusInternalServerError, "")), true},
		"no connection":             {errors.New("connection refused"), false},
		"no response in time":       {context.DeadlineExceeded, false},
	} {
		if got := isFromAPIServer(test.err); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
