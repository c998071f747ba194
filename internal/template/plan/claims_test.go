// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// claim returns an entry of a manager that applies fields.
func claim(manager, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationApply, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}
}

func TestDisown(t *testing.T) {
	const team, other = "nslifecycle-template:team", "nslifecycle-template:other"
	pods, both := `{"f:hard":{"f:pods":{}}}`, `{"f:hard":{"f:pods":{},"f:services":{}}}`
	status := claim("kcm", both)
	status.Subresource = "status"
	item := func(fields string) string {
		return `{"f:ports":{"k:{\"port\":80}":{".":{},"f:port":{}` + fields + `}}}`
	}
	entries := func(entries ...metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry { return entries }
	tests := map[string]struct {
		entries []metav1.ManagedFieldsEntry
		applied string
		isNew   bool
		// isShared is true if hasSharedFields is true.
		isShared bool
		want     []metav1.ManagedFieldsEntry
	}{
		"no other client":     {entries: entries(claim(team, both)), applied: pods},
		"only the status":     {entries: entries(claim(team, both), status), applied: pods},
		"other fields":        {entries: entries(claim(team, both), claim("user", `{"f:scopes":{}}`)), applied: pods},
		"only another client": {entries: entries(claim("user", both)), applied: pods},
		"the same fields, of which none is dropped": {
			entries: entries(claim(team, both), claim("user", both)), applied: both, isShared: true,
		},
		"a dropped field": {
			entries: entries(claim("user", both), claim(team, both), status), applied: pods, isShared: true,
			want: entries(claim("user", pods), claim(team, both), status),
		},
		"all fields of another client": {
			entries: entries(claim("user", pods), claim(team, both)), applied: `{"f:hard":{"f:services":{}}}`, isShared: true,
			want: entries(claim(team, both)),
		},
		"a dropped element in which another client has set a field": {
			entries: entries(claim("user", item(`,"f:name":{}`)), claim(team, item(""))), applied: pods, isShared: true,
			want: entries(claim(team, item(""))),
		},
		"an empty map that the template fills, in which another client has set a key": {
			entries: entries(claim("user", `{"f:hard":{".":{},"f:services":{}}}`), claim(team, `{"f:hard":{}}`)), applied: pods,
			isShared: true,
		},
		"fields of another template": {
			entries: entries(claim("user", both), claim(other, both), claim(team, pods)), applied: pods, isShared: true,
		},
		"fields of another template, from which the object moves": {
			entries: entries(claim("user", both), claim(other, both)), applied: pods, isNew: true, isShared: true,
			want: entries(claim("user", pods), claim(other, both)),
		},
		"a dropped field that another client claims as another template": {
			entries: entries(claim(other, both), claim(team, both)), applied: pods, isShared: true,
			want: entries(claim(other, pods), claim(team, both)),
		},
		"fields that cannot be decoded": {entries: entries(claim("user", "{"), claim(team, both)), applied: pods},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			labeled := "team"
			if test.isNew {
				labeled = "other"
			}
			g.Expect(hasSharedFields(test.entries, labeled)).To(Equal(test.isShared))
			disowned, err := withoutClaims(test.entries, []metav1.ManagedFieldsEntry{claim(team, test.applied)}, "team", test.isNew)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(disowned).To(Equal(test.want))
		})
	}
	g := NewWithT(t)
	g.Expect(ownClaims(entries(claim("user", both), claim(team, pods), claim(other, pods), status), "team")).To(Equal(entries(claim(team, pods))))
	g.Expect(isEscaped(entries(claim("user", `{"f:a\u0026b":{}}`), claim(team, pods)))).To(BeFalse())
	g.Expect(isEscaped(entries(claim(team, `{"f:a\u0026b":{}}`)))).To(BeTrue())
}
