// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"errors"
	"fmt"
	"time"

	"github.com/nslifecycle/nslifecycle/internal/admission/webhooks"
)

// Options configure the webhooks, and the server that they share with other webhooks.
type Options struct {
	webhooks.Options
	// Duration is the maximum time that a write waits.
	Duration time.Duration
	Limits   Limits
}

// Validate returns an error if the options are invalid.
func (o *Options) Validate() error {
	errs := []error{o.Options.Validate()}
	if o.Duration <= 0 {
		errs = append(errs, fmt.Errorf(messageInvalidDuration, o.Duration))
	}
	if o.Limits.Total < 1 || o.Limits.PerUser < 1 {
		errs = append(errs, errors.New(messageInvalidLimits))
	}
	return errors.Join(errs...)
}
