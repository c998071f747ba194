// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/internal/admission/webhooks"
)

func TestValidate(t *testing.T) {
	tests := map[string]struct {
		change func(*Options)
		want   string // empty if the options are valid
	}{
		"defaults":            {change: func(*Options) {}},
		"a URL":               {change: func(o *Options) { o.URL = "https://manager.example.com:9443" }},
		"a URL with IP":       {change: func(o *Options) { o.URL = "https://192.0.2.1:9443" }, want: "--webhook-url"},
		"a URL without TLS":   {change: func(o *Options) { o.URL = "http://manager.example.com" }, want: "--webhook-url"},
		"no port":             {change: func(o *Options) { o.Address = "localhost" }, want: "--webhook-bind-address"},
		"no duration":         {change: func(o *Options) { o.Duration = 0 }, want: "--hold-duration"},
		"no writes":           {change: func(o *Options) { o.Limits.Total = 0 }, want: "--hold-max-writes"},
		"no writes of a user": {change: func(o *Options) { o.Limits.PerUser = -1 }, want: "--hold-max-writes-per-user"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			options := &Options{
				Options:  webhooks.Options{Address: ":9443"},
				Duration: 10 * time.Second, Limits: Limits{PerUser: 5, Total: 25},
			}
			test.change(options)
			if test.want == "" {
				g.Expect(options.Validate()).To(Succeed())
			} else {
				g.Expect(options.Validate()).To(MatchError(ContainSubstring(test.want)))
			}
		})
	}
}
