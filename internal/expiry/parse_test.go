// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// created is the creation time of the namespaces in these tests.
var created = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func makeNamespace() *wrappers.NamespaceWrapper {
	wrapper := wrappers.MakeNamespace("shop")
	wrapper.CreationTimestamp = metav1.NewTime(created)
	return wrapper
}

func TestParseTime(t *testing.T) {
	tests := map[string]struct {
		want    time.Time
		invalid bool
	}{
		"2026-12-24T18:00:00Z":           {want: time.Date(2026, 12, 24, 18, 0, 0, 0, time.UTC)},
		"2026-12-24T18:00:00+01:00":      {want: time.Date(2026, 12, 24, 17, 0, 0, 0, time.UTC)},
		"2026-12-24T18:00:00-23:59":      {want: time.Date(2026, 12, 25, 17, 59, 0, 0, time.UTC)},
		"2026-12-24T18:00:00.5Z":         {want: time.Date(2026, 12, 24, 18, 0, 0, 5e8, time.UTC)},
		"2028-02-29T00:00:00Z":           {want: time.Date(2028, 2, 29, 0, 0, 0, 0, time.UTC)},
		"9999-12-31T23:59:59Z":           {want: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)},
		"0001-01-01T00:00:00Z":           {want: time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)},
		"":                               {invalid: true},
		"tomorrow":                       {invalid: true},
		"2026-12-24":                     {invalid: true},
		"2026-12-24T18:00:00":            {invalid: true},
		"2026-12-24 18:00:00Z":           {invalid: true},
		"2026-12-24t18:00:00z":           {invalid: true},
		"2026-12-24T18:00Z":              {invalid: true},
		"2026-12-24T8:00:00Z":            {invalid: true},
		"2026-12-24T24:00:00Z":           {invalid: true},
		"2026-12-24T18:60:00Z":           {invalid: true},
		"2026-12-24T18:00:60Z":           {invalid: true},
		"2026-12-24T18:00:00,5Z":         {invalid: true},
		"2026-12-24T18:00:00+24:00":      {invalid: true},
		"2026-02-29T00:00:00Z":           {invalid: true},
		"2026-13-01T00:00:00Z":           {invalid: true},
		"12026-12-24T18:00:00Z":          {invalid: true},
		" 2026-12-24T18:00:00Z":          {invalid: true},
		"2026-12-24T18:00:00Z\n":         {invalid: true},
		"1798135200":                     {invalid: true},
		"٢٠٢٦-12-24T18:00:00Z":           {invalid: true},
		"2026-12-24T18:00:00.123456789Z": {want: time.Date(2026, 12, 24, 18, 0, 0, 123456789, time.UTC)},
	}
	for text, test := range tests {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			expires, err := Parse(makeNamespace().Annotation(v1alpha1.AnnotationExpiresAt, text).Obj())
			if test.invalid {
				g.Expect(err).To(MatchError(msgInvalidTime(text)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(expires.At).To(BeTemporally("==", test.want))
			g.Expect(expires.String()).To(Equal("nslifecycle.dev/expires-at=" + text))
		})
	}
}

func TestParseTTL(t *testing.T) {
	const day = 24 * time.Hour
	tests := map[string]struct {
		want    time.Duration
		invalid bool
	}{
		"1s": {want: time.Second}, "90m": {want: 90 * time.Minute}, "8h": {want: 8 * time.Hour}, "7d": {want: 7 * day},
		"1d2h3m4s": {want: day + 2*time.Hour + 3*time.Minute + 4*time.Second},
		"1h30m":    {want: 90 * time.Minute}, "1d1s": {want: day + time.Second}, "0d5m": {want: 5 * time.Minute},
		"99999d99999h99999m99999s": {want: 99999 * (day + time.Hour + time.Minute + time.Second)},
		"":                         {invalid: true}, "0": {invalid: true}, "0s": {invalid: true}, "0d0h0m0s": {invalid: true},
		"-1h": {invalid: true}, "+1h": {invalid: true}, "8": {invalid: true}, "8H": {invalid: true}, "1.5h": {invalid: true},
		"1h 30m": {invalid: true}, "30m1h": {invalid: true}, "1h1h": {invalid: true}, "1w": {invalid: true}, "1y": {invalid: true},
		"1ms": {invalid: true}, "P7D": {invalid: true}, "100000d": {invalid: true}, "8h\n": {invalid: true}, " 8h": {invalid: true},
		"h": {invalid: true}, "never": {invalid: true}, "٨h": {invalid: true},
	}
	for text, test := range tests {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			expires, err := Parse(makeNamespace().Annotation(v1alpha1.AnnotationTTL, text).Obj())
			if test.invalid {
				g.Expect(err).To(MatchError(msgInvalidTTL(text)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(expires.At.Sub(created)).To(Equal(test.want))
			g.Expect(expires.String()).To(Equal("nslifecycle.dev/ttl=" + text))
		})
	}
}

func TestParseInvalid(t *testing.T) {
	tests := map[string]struct {
		namespace *wrappers.NamespaceWrapper
		want      string
	}{
		"both annotations": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationTTL, "8h").
				Annotation(v1alpha1.AnnotationExpiresAt, "2026-12-24T18:00:00Z"),
			want: msgBothAnnotations,
		},
		"TTL without a creation time": {
			namespace: wrappers.MakeNamespace("shop").Annotation(v1alpha1.AnnotationTTL, "8h"),
			want:      msgNoCreationTime,
		},
		"truncated value": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationTTL, strings.Repeat("ß", 1000)),
			want:      "the annotation nslifecycle.dev/ttl is \"" + strings.Repeat("ß", 64) + `..."`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := test.namespace.Obj()
			g.Expect(IsSet(namespace)).To(BeTrue())
			_, err := Parse(namespace)
			g.Expect(err).To(MatchError(HavePrefix(test.want)))
		})
	}
	NewWithT(t).Expect(IsSet(makeNamespace().Label(v1alpha1.AnnotationTTL, "8h").Obj())).To(BeFalse())
}
