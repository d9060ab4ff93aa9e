//! Server reflection: describes the services to generic clients, such as `grpcurl`.
//!
//! Source: gRPC's `reflection/v1/reflection.proto`. As with grpc-go's server, a stream continues after a request without an
//! answer, and a file is sent with its imports, unless the stream has sent them already.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;

use futures::{Stream, StreamExt};
use prost::Message;
use prost_reflect::prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    FileDescriptorSet, OneofDescriptorProto,
};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{
    ErrorResponse, ExtensionNumberResponse, FileDescriptorResponse, ListServiceResponse, ServerReflectionRequest,
    ServerReflectionResponse, ServiceResponse,
};
use tonic_reflection::server::v1::ServerReflection;

/// The reflection service over sets of file descriptors.
#[derive(Clone, Debug)]
pub(super) struct Reflection(Arc<Described>);

#[derive(Debug, Default)]
struct Described {
    files: BTreeMap<String, File>,
    /// File of each service, method, message, field, enumeration and value of one.
    symbols: BTreeMap<String, String>,
    messages: BTreeSet<String>,
    services: BTreeSet<String>,
}

#[derive(Debug)]
struct File {
    encoded: Vec<u8>,
    imports: Vec<String>,
}

impl Reflection {
    /// Indexes encoded sets of file descriptors.
    pub(super) fn new(sets: &[&[u8]]) -> Result<Self, prost::DecodeError> {
        let mut described = Described::default();
        for set in sets {
            for file in FileDescriptorSet::decode(*set)?.file {
                described.add(&file);
            }
        }
        Ok(Self(Arc::new(described)))
    }
}

impl Described {
    fn add(&mut self, file: &FileDescriptorProto) {
        let within =
            |name: &str| if file.package().is_empty() { name.to_owned() } else { format!("{}.{name}", file.package()) };
        for service in &file.service {
            let name = within(service.name());
            for method in &service.method {
                self.symbols.insert(format!("{name}.{}", method.name()), file.name().to_owned());
            }
            self.symbols.insert(name.clone(), file.name().to_owned());
            self.services.insert(name);
        }
        for message in &file.message_type {
            self.add_message(file.name(), &within(message.name()), message);
        }
        for one in &file.enum_type {
            self.add_enum(file.name(), file.package(), one);
        }
        let described = File { encoded: file.encode_to_vec(), imports: file.dependency.clone() };
        self.files.insert(file.name().to_owned(), described);
    }

    fn add_message(&mut self, file: &str, name: &str, message: &DescriptorProto) {
        let oneofs = message.oneof_decl.iter().map(OneofDescriptorProto::name);
        for member in message.field.iter().map(FieldDescriptorProto::name).chain(oneofs) {
            self.symbols.insert(format!("{name}.{member}"), file.to_owned());
        }
        for nested in &message.nested_type {
            self.add_message(file, &format!("{name}.{}", nested.name()), nested);
        }
        for one in &message.enum_type {
            self.add_enum(file, name, one);
        }
        self.symbols.insert(name.to_owned(), file.to_owned());
        self.messages.insert(name.to_owned());
    }

    /// Adds an enumeration and its values, whose names are in the same scope.
    fn add_enum(&mut self, file: &str, scope: &str, one: &EnumDescriptorProto) {
        for name in one.value.iter().map(EnumValueDescriptorProto::name).chain([one.name()]) {
            let name = if scope.is_empty() { name.to_owned() } else { format!("{scope}.{name}") };
            self.symbols.insert(name, file.to_owned());
        }
    }

    fn answer(&self, question: &MessageRequest, sent: &mut BTreeSet<String>) -> MessageResponse {
        let not_found = |message: String| {
            MessageResponse::ErrorResponse(ErrorResponse { error_code: Code::NotFound.into(), error_message: message })
        };
        match question {
            MessageRequest::FileByFilename(name) if self.files.contains_key(name) => self.with_imports(name, sent),
            MessageRequest::FileByFilename(name) => not_found(format!("no file {name:?}")),
            MessageRequest::FileContainingSymbol(symbol) => match self.symbols.get(symbol) {
                Some(file) => self.with_imports(file, sent),
                None => not_found(format!("no symbol {symbol:?}")),
            },
            MessageRequest::FileContainingExtension(asked) => {
                not_found(format!("no extension {} of {:?}", asked.extension_number, asked.containing_type))
            }
            MessageRequest::AllExtensionNumbersOfType(name) if self.messages.contains(name) => {
                let extension_number = Vec::new();
                MessageResponse::AllExtensionNumbersResponse(ExtensionNumberResponse {
                    base_type_name: name.clone(),
                    extension_number,
                })
            }
            MessageRequest::AllExtensionNumbersOfType(name) => not_found(format!("no message {name:?}")),
            MessageRequest::ListServices(_) => {
                let service = self.services.iter().map(|name| ServiceResponse { name: name.clone() }).collect();
                MessageResponse::ListServicesResponse(ListServiceResponse { service })
            }
        }
    }

    /// Returns a file, even if the stream has it already, and those of its imports that it does not have.
    fn with_imports(&self, name: &str, sent: &mut BTreeSet<String>) -> MessageResponse {
        sent.remove(name);
        let (mut files, mut waiting) = (Vec::new(), vec![name]);
        while let Some(name) = waiting.pop() {
            let Some(file) = self.files.get(name).filter(|_| !sent.contains(name)) else { continue };
            sent.insert(name.to_owned());
            files.push(file.encoded.clone());
            waiting.extend(file.imports.iter().map(String::as_str));
        }
        MessageResponse::FileDescriptorResponse(FileDescriptorResponse { file_descriptor_proto: files })
    }
}

#[tonic::async_trait]
impl ServerReflection for Reflection {
    type ServerReflectionInfoStream = Pin<Box<dyn Stream<Item = Result<ServerReflectionResponse, Status>> + Send>>;

    async fn server_reflection_info(
        &self,
        request: Request<Streaming<ServerReflectionRequest>>,
    ) -> Result<Response<Self::ServerReflectionInfoStream>, Status> {
        let (described, mut sent) = (self.0.clone(), BTreeSet::new());
        let answers = request.into_inner().map(move |request| {
            let request = request?;
            let Some(question) = &request.message_request else {
                return Err(Status::invalid_argument("the request is empty: set one of its fields"));
            };
            let answer = described.answer(question, &mut sent);
            Ok(ServerReflectionResponse {
                valid_host: request.host.clone(),
                original_request: Some(request),
                message_response: Some(answer),
            })
        });
        Ok(Response::new(Box::pin(answers)))
    }
}
