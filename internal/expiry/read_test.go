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
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// created is when the namespaces of these tests were created.
var created = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func makeNamespace() *wrappers.NamespaceWrapper {
	wrapper := wrappers.MakeNamespace("shop")
	wrapper.CreationTimestamp = metav1.NewTime(created)
	return wrapper
}

func TestReadTime(t *testing.T) {
	const wrong = "and not a time in the format of RFC 3339, such as 2026-12-24T18:00:00Z"
	tests := map[string]struct {
		want  time.Time
		wrong bool
	}{
		"2026-12-24T18:00:00Z":           {want: time.Date(2026, 12, 24, 18, 0, 0, 0, time.UTC)},
		"2026-12-24T18:00:00+01:00":      {want: time.Date(2026, 12, 24, 17, 0, 0, 0, time.UTC)},
		"2026-12-24T18:00:00-23:59":      {want: time.Date(2026, 12, 25, 17, 59, 0, 0, time.UTC)},
		"2026-12-24T18:00:00.5Z":         {want: time.Date(2026, 12, 24, 18, 0, 0, 5e8, time.UTC)},
		"2028-02-29T00:00:00Z":           {want: time.Date(2028, 2, 29, 0, 0, 0, 0, time.UTC)},
		"9999-12-31T23:59:59Z":           {want: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)},
		"0001-01-01T00:00:00Z":           {want: time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)},
		"":                               {wrong: true},
		"tomorrow":                       {wrong: true},
		"2026-12-24":                     {wrong: true},
		"2026-12-24T18:00:00":            {wrong: true},
		"2026-12-24 18:00:00Z":           {wrong: true},
		"2026-12-24t18:00:00z":           {wrong: true},
		"2026-12-24T18:00Z":              {wrong: true},
		"2026-12-24T8:00:00Z":            {wrong: true},
		"2026-12-24T24:00:00Z":           {wrong: true},
		"2026-12-24T18:60:00Z":           {wrong: true},
		"2026-12-24T18:00:60Z":           {wrong: true},
		"2026-12-24T18:00:00,5Z":         {wrong: true},
		"2026-12-24T18:00:00+24:00":      {wrong: true},
		"2026-02-29T00:00:00Z":           {wrong: true},
		"2026-13-01T00:00:00Z":           {wrong: true},
		"12026-12-24T18:00:00Z":          {wrong: true},
		" 2026-12-24T18:00:00Z":          {wrong: true},
		"2026-12-24T18:00:00Z\n":         {wrong: true},
		"1798135200":                     {wrong: true},
		"٢٠٢٦-12-24T18:00:00Z":           {wrong: true},
		"2026-12-24T18:00:00.123456789Z": {want: time.Date(2026, 12, 24, 18, 0, 0, 123456789, time.UTC)},
	}
	for text, test := range tests {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			expires, err := Read(makeNamespace().Annotation(v1alpha1.AnnotationExpiresAt, text).Obj())
			if test.wrong {
				g.Expect(err).To(MatchError(And(HavePrefix("annotation nslifecycle.dev/expires-at is \""), HaveSuffix(wrong))))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(expires.At).To(BeTemporally("==", test.want))
			g.Expect(expires.String()).To(Equal("nslifecycle.dev/expires-at=" + text))
		})
	}
}

func TestReadTTL(t *testing.T) {
	const day = 24 * time.Hour
	tests := map[string]struct {
		want  time.Duration
		wrong bool
	}{
		"1s": {want: time.Second}, "90m": {want: 90 * time.Minute}, "8h": {want: 8 * time.Hour}, "7d": {want: 7 * day},
		"1d2h3m4s": {want: day + 2*time.Hour + 3*time.Minute + 4*time.Second},
		"1h30m":    {want: 90 * time.Minute}, "1d1s": {want: day + time.Second}, "0d5m": {want: 5 * time.Minute},
		"99999d99999h99999m99999s": {want: 99999 * (day + time.Hour + time.Minute + time.Second)},
		"":                         {wrong: true}, "0": {wrong: true}, "0s": {wrong: true}, "0d0h0m0s": {wrong: true},
		"-1h": {wrong: true}, "+1h": {wrong: true}, "8": {wrong: true}, "8H": {wrong: true}, "1.5h": {wrong: true},
		"1h 30m": {wrong: true}, "30m1h": {wrong: true}, "1h1h": {wrong: true}, "1w": {wrong: true}, "1y": {wrong: true},
		"1ms": {wrong: true}, "P7D": {wrong: true}, "100000d": {wrong: true}, "8h\n": {wrong: true}, " 8h": {wrong: true},
		"h": {wrong: true}, "never": {wrong: true}, "٨h": {wrong: true},
	}
	for text, test := range tests {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			expires, err := Read(makeNamespace().Annotation(v1alpha1.AnnotationTTL, text).Obj())
			if test.wrong {
				g.Expect(err).To(MatchError(And(HavePrefix("annotation nslifecycle.dev/ttl is \""),
					HaveSuffix("and not a time above zero in days, hours, minutes and seconds, such as 7d or 1h30m"))))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(expires.At.Sub(created)).To(Equal(test.want))
			g.Expect(expires.String()).To(Equal("nslifecycle.dev/ttl=" + text))
		})
	}
}

func TestReadWhatIsNotClear(t *testing.T) {
	tests := map[string]struct {
		namespace *wrappers.NamespaceWrapper
		want      string
	}{
		"both": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationTTL, "8h").
				Annotation(v1alpha1.AnnotationExpiresAt, "2026-12-24T18:00:00Z"),
			want: "annotations nslifecycle.dev/expires-at and nslifecycle.dev/ttl are both there, " +
				"and only one of them can count; remove the other",
		},
		"a lifetime from nowhere": {
			namespace: wrappers.MakeNamespace("shop").Annotation(v1alpha1.AnnotationTTL, "8h"),
			want:      "annotation nslifecycle.dev/ttl counts from the creation of the namespace, and that is not known",
		},
		"a value that is too long to be shown": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationTTL, strings.Repeat("ß", 1000)),
			want: "annotation nslifecycle.dev/ttl is \"" + strings.Repeat("ß", 64) + "...\" " +
				"and not a time above zero in days, hours, minutes and seconds, such as 7d or 1h30m",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := test.namespace.Obj()
			g.Expect(Has(namespace)).To(BeTrue())
			_, err := Read(namespace)
			g.Expect(err).To(MatchError(test.want))
		})
	}
	NewWithT(t).Expect(Has(makeNamespace().Label(v1alpha1.AnnotationTTL, "8h").Obj())).To(BeFalse())
}
