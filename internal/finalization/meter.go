// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

// Purpose is what a request to the API server is made for.
type Purpose string

// The purposes. Discovery and watches are not among them.
const (
	// PurposeSurvey: a list on behalf of all namespaces that want to know about a type.
	PurposeSurvey Purpose = "survey"
	// PurposeList: a list of what one namespace has, or still has, of a type.
	PurposeList Purpose = "list"
	// PurposeConfirm: is it still the same Namespace?
	PurposeConfirm Purpose = "confirm"
	// PurposeDelete: the deletion of one object.
	PurposeDelete Purpose = "delete"
	// PurposeDeleteCollection: the deletion of all objects of a type that cannot be listed.
	PurposeDeleteCollection Purpose = "deletecollection"
)

// Purposes are all of them.
func Purposes() []Purpose {
	return []Purpose{PurposeSurvey, PurposeList, PurposeConfirm, PurposeDelete, PurposeDeleteCollection}
}

// Meter is told what a Deleter does, by many goroutines at a time.
type Meter interface {
	// Requested is called for each request that is about to be made. Where the API server
	// puts one off and client-go repeats it, it is still one.
	Requested(Purpose)
	// Deleted is called when the API server has accepted to delete an object that was not
	// being deleted yet.
	Deleted()
	// Answered is called when a survey has found out what there is of some types in a
	// namespace. Each of them would have taken a request of its own if no answer were shared.
	Answered(types int)
}

// noMeter is the Meter where nobody wants to know.
type noMeter struct{}

func (noMeter) Requested(Purpose) {}
func (noMeter) Deleted()          {}
func (noMeter) Answered(int)      {}

// WithMeter makes a Deleter that has not been used yet tell a Meter what it does.
func (d *Deleter) WithMeter(meter Meter) *Deleter {
	d.meter, d.surveyor.meter = meter, meter
	return d
}
