// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"testing"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

func TestDiagnosisStatus(t *testing.T) {
	healthy := &diagnosis.Diagnosis{State: diagnosis.Healthy}
	progressing := &diagnosis.Diagnosis{State: diagnosis.Progressing}
	if err := diagnosisStatus(healthy, progressing); err != nil {
		t.Errorf("healthy and progressing: %v", err)
	}
	blocked := &diagnosis.Diagnosis{State: diagnosis.Blocked}
	var exit *StatusError
	unknown := &diagnosis.Diagnosis{State: diagnosis.Unknown}
	if err := diagnosisStatus(healthy, unknown, blocked); !errors.As(err, &exit) || exit.Code != ExitBlocked {
		t.Errorf("blocked: %v", err)
	}
	if err := diagnosisStatus(healthy, unknown); !errors.As(err, &exit) || exit.Code != ExitError {
		t.Errorf("unknown: %v", err)
	}
}
