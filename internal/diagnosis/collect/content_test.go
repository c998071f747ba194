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
		"a connection error":        {errors.New("connection refused"), false},
		"a timeout":                 {context.DeadlineExceeded, false},
	} {
		if got := isFromAPIServer(test.err); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
